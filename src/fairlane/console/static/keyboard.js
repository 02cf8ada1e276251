// Search by keyboard: `/` goes to the search, Enter opens the first hit, arrow keys move between the search and the hits.

const searchField = () => document.querySelector("main input[type=search]");
const hits = () => [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);

function focusSearch(elsewhere) {
  if (searchField()) return searchField().select();
  if (!elsewhere) return;
  addEventListener("hashchange", () => searchField()?.focus(), { once: true });
  location.hash = elsewhere;
}

/** Search for what was typed, also a moment ago, and open the first hit unless the view is left. */
async function openFirst(view, isOpen) {
  let load;
  while (isOpen() && load !== view.loads) {
    const loading = view.load();
    load = view.loads; // which differs when a later search has begun
    await loading;
  }
  if (isOpen()) hits()[0]?.click();
}

/** Listen; `elsewhere()` is the address of a search, for views without one. */
export function listenToKeys(currentView, elsewhere) {
  addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const view = currentView(),
      isSearch = target === searchField(),
      links = hits(),
      position = links.indexOf(target);
    if (key === "/" && !target.closest("input, select, textarea")) focusSearch(elsewhere());
    else if (key === "Enter" && isSearch && view.load) openFirst(view, () => view === currentView());
    else if (key === "ArrowDown" && (isSearch || position >= 0)) links[position + 1]?.focus();
    else if (key === "ArrowUp" && position >= 0) (links[position - 1] ?? searchField()).focus();
    else return;
    event.preventDefault();
  });
}
