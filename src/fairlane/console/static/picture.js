// How do nine lanes look with 3 documents, and with 300,000? A drawing of blocks that move towards the workers.
//
// Laws:
// - While all documents fit, one block is one document; else it is up to so many of one customer, the same number in all
//   lanes. Whoever is told of in a lane has a block there, so that no lane with documents looks empty.
// - Nothing moves when the reader asked for less motion; nothing is computed while nothing moves.

import { OTHERS, colourOf } from "./colours.js";

const BLOCK = 9,
  GAP = 3,
  PITCH = BLOCK + GAP;
const FLIGHT_MS = 700,
  FRAME_MS = 1000,
  FLYING_MAX = 90;
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** The smallest of 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, ... that is not less. */
export function roundUp(value) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((one) => one * ten).find((one) => one >= value);
}

/** One customer after the other, one document each, as turns are taken. */
function inTurns(parts, most) {
  const left = parts.map((part) => part.ready),
    order = [];
  while (order.length < most) {
    const before = order.length;
    for (let place = 0; place < left.length && order.length < most; place++) {
      if (left[place]-- > 0) order.push(place);
    }
    if (order.length === before) break;
  }
  return order;
}

/** The parts of a lane: its customers with the most waiting, and all others together. */
function partsOf(lane) {
  const parts = lane.top.filter((one) => one.ready > 0).map((one) => ({ ...one, colour: colourOf(one.customer) }));
  if (lane.others.ready > 0)
    parts.push({ customer: null, customers: lane.others.customers, ready: lane.others.ready, colour: OTHERS });
  return parts;
}

export class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.lanes = [];
    this.flying = [];
    this.running = [];
    this.shift = Array(9).fill(0);
    this.each = 1;
    this.arranged = null; // told how many documents one block is, and whether there are others, when that may have changed
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(canvas);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    this.dark.addEventListener("change", this.redraw);
  }

  close() {
    this.watcher.disconnect();
    this.dark.removeEventListener("change", this.redraw);
    cancelAnimationFrame(this.next);
    this.flying = [];
    this.closed = true;
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width) return;
    const scale = devicePixelRatio || 1;
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = Math.round(box.width * scale);
    this.canvas.height = Math.round(box.height * scale);
    this.pen = this.canvas.getContext("2d");
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.room = box.width < 420 ? 62 : 132; // for the workers
    this.end = this.width - this.room;
    this.slots = Math.max(6, Math.floor((this.end - 10) / PITCH));
    this.arrange();
    this.draw();
  }

  /** Take a frame: what waits now, what runs now, what moved since the last one. */
  frame(told) {
    this.told = told;
    this.running = told.running;
    if (!this.width) this.resize();
    else this.arrange();
    if (!still.matches && !document.hidden) this.fly(told.moves || []);
    this.draw();
    this.run();
  }

  arrange() {
    if (!this.told) return;
    const most = Math.max(...this.told.lanes.map((lane) => lane.ready));
    this.each = most <= this.slots ? 1 : roundUp(most / this.slots);
    this.lanes = this.told.lanes.map((lane) => {
      const parts = partsOf(lane);
      if (this.each === 1) return { parts, blocks: inTurns(parts, this.slots) };
      const blocks = parts.flatMap((part, place) => Array(Math.max(1, Math.round(part.ready / this.each))).fill(place));
      return { parts, blocks: blocks.slice(0, this.slots) };
    });
    this.arranged?.(
      this.each,
      this.told.lanes.some((lane) => lane.others.ready > 0),
    );
  }

  // -- where things are ------------------------------------------------------------------------------------------------

  row(priority) {
    return this.height / 9;
  }

  middle(priority) {
    return this.row() * (priority - 0.5);
  }

  head(place) {
    return this.end - 8 - place * PITCH;
  }

  columns() {
    return this.room < 100 ? 2 : 4;
  }

  slot(place) {
    const columns = this.columns(),
      size = Math.min(24, (this.room - 20) / columns);
    const rows = Math.ceil(Math.max(1, this.running.length) / columns);
    const x = this.end + 1 + this.room / 2 + ((place % columns) - (columns - 1) / 2) * size;
    const y = this.height / 2 + (Math.floor(place / columns) - (rows - 1) / 2) * size;
    return { x, y, size };
  }

  // -- what moves ------------------------------------------------------------------------------------------------------

  fly(moves) {
    const now = performance.now();
    for (const move of moves) {
      const count = Math.min(move.count, 10);
      for (let each = 0; each < count && this.flying.length < FLYING_MAX; each++) {
        const path = this.path(move);
        if (path)
          this.flying.push({
            ...path,
            colour: colourOf(move.customer),
            from: now + (FRAME_MS * each) / count,
            size: move.count > 10 ? 5 : 4,
          });
      }
      if (move.what === "claimed" && this.each === 1) {
        this.shift[move.priority - 1] = Math.min(4 * PITCH, this.shift[move.priority - 1] + move.count * PITCH);
      }
    }
  }

  path(move) {
    const y = this.middle(move.priority),
      lane = this.lanes[move.priority - 1];
    if (!lane) return null;
    const place = this.slot(
      Math.max(
        0,
        this.running.findIndex((one) => one.customer === move.customer && one.priority === move.priority),
      ),
    );
    if (move.what === "submitted" || move.what === "retried" || move.what === "expired")
      return { x: 0, y, X: Math.max(12, this.head(lane.blocks.length)), Y: y };
    if (move.what === "claimed") return { x: this.head(0), y, X: place.x, Y: place.y };
    if (move.what === "done") return { x: place.x, y: place.y, X: this.width + 6, Y: place.y };
    return { x: place.x, y: place.y, X: place.x, Y: this.height + 8 };
  }

  run() {
    cancelAnimationFrame(this.next);
    if (this.closed || (!this.flying.length && this.shift.every((one) => one < 0.5))) return;
    this.next = requestAnimationFrame(() => {
      this.shift = this.shift.map((one) => one * 0.88);
      this.draw();
      this.run();
    });
  }

  // -- drawing ---------------------------------------------------------------------------------------------------------

  colour(name) {
    return getComputedStyle(this.canvas).getPropertyValue(name).trim() || "#888";
  }

  draw() {
    if (!this.pen || this.closed) return;
    const pen = this.pen,
      road = this.colour("--road"),
      line = this.colour("--line");
    pen.clearRect(0, 0, this.width, this.height);
    for (let priority = 1; priority <= 9; priority++) this.drawLane(pen, priority, road, line);
    this.drawWorkers(pen, road, line);
    this.drawFlying(pen);
  }

  drawLane(pen, priority, road, line) {
    const y = this.middle(priority),
      tall = this.row() - 8,
      lane = this.lanes[priority - 1];
    pen.fillStyle = road;
    box(pen, 0, y - tall / 2, this.end, tall, 6);
    if (!lane) return;
    const height = Math.max(8, tall - 10),
      shift = this.shift[priority - 1];
    lane.blocks.forEach((place, number) => {
      const x = this.head(number) - BLOCK - (this.each === 1 ? shift : 0);
      if (x < 0) return;
      pen.fillStyle = lane.parts[place].colour;
      if (this.each === 1) box(pen, x, y - height / 2, BLOCK, height, 2.5);
      else {
        pen.fillRect(x, y - height / 2, PITCH + 0.5, height); // blocks of many stand close: a pile
        pen.fillStyle = road;
        pen.fillRect(x, y - height / 2, 1, height);
      }
    });
  }

  drawWorkers(pen, road, line) {
    const wide = this.room - 14;
    pen.strokeStyle = line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(this.end + 8, 0.5, wide, this.height - 1, 10);
    pen.stroke();
    this.running.forEach((one, place) => {
      const { x, y, size } = this.slot(place);
      pen.fillStyle = colourOf(one.customer);
      box(pen, x - size / 2 + 2, y - size / 2 + 2, size - 4, size - 4, 5);
    });
  }

  drawFlying(pen) {
    const now = performance.now();
    this.flying = this.flying.filter((one) => now < one.from + FLIGHT_MS);
    for (const one of this.flying) {
      if (now < one.from) continue;
      const part = (now - one.from) / FLIGHT_MS,
        eased = part * part * (3 - 2 * part);
      pen.fillStyle = one.colour;
      pen.beginPath();
      pen.arc(one.x + (one.X - one.x) * eased, one.y + (one.Y - one.y) * eased, one.size, 0, 7);
      pen.fill();
    }
  }

  /** What stands at this place of the drawing: {customer, customers, ready, priority}, or null. */
  at(x, y) {
    const priority = Math.floor(y / this.row()) + 1,
      lane = this.lanes[priority - 1];
    if (x > this.end) {
      const place = this.running.findIndex((_, number) => {
        const slot = this.slot(number);
        return Math.abs(slot.x - x) < slot.size / 2 && Math.abs(slot.y - y) < slot.size / 2;
      });
      return place < 0 ? null : { ...this.running[place], is_running: true };
    }
    if (!lane) return null;
    const part = lane.parts[lane.blocks[Math.floor((this.end - 8 - x) / PITCH)]];
    return part ? { ...part, priority } : null;
  }
}

function box(pen, x, y, wide, tall, round) {
  pen.beginPath();
  pen.roundRect(x, y, wide, tall, round);
  pen.fill();
}
