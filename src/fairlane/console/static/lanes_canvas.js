// The animated drawing of the nine lanes, for 3 documents as for 300,000: blocks that move towards the workers.
//
// Laws:
// - While all documents fit, one block is one document; otherwise it is up to a number of documents of one customer, the same
//   number in all lanes. Every customer named in a lane has a block there, so that no lane with documents seems empty.
// - Nothing moves when the reader prefers reduced motion; nothing is computed while nothing moves.

import { OTHERS, customerColour } from "./colours.js";

const BLOCK = 9,
  GAP = 3,
  PITCH = BLOCK + GAP;
const FLIGHT_MS = 700,
  FRAME_MS = 1000,
  FLYING_MAX = 90;
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

/** The smallest of 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, ... that is not less than a value. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((digit) => digit * power).find((candidate) => candidate >= value);
}

/** The order in which customers take turns, a document each: indexes of parts, at most `max`. */
function turnOrder(parts, max) {
  const left = parts.map((part) => part.ready),
    order = [];
  while (order.length < max) {
    const before = order.length;
    for (let index = 0; index < left.length && order.length < max; index++) {
      if (left[index]-- > 0) order.push(index);
    }
    if (order.length === before) break;
  }
  return order;
}

/** The parts of a lane: the customers with most documents waiting, and all others together. */
function laneParts(lane) {
  const parts = lane.top
    .filter((entry) => entry.ready > 0)
    .map((entry) => ({ ...entry, colour: customerColour(entry.customer) }));
  if (lane.others.ready > 0)
    parts.push({ customer: null, customers: lane.others.customers, ready: lane.others.ready, colour: OTHERS });
  return parts;
}

export class LanesCanvas {
  /** `onArrange` is called with the number of documents in a block, and whether there are other customers, in grey. */
  constructor(canvas, onArrange) {
    this.canvas = canvas;
    this.onArrange = onArrange;
    this.lanes = [];
    this.flying = [];
    this.running = [];
    this.offsets = Array(9).fill(0);
    this.documentsPerBlock = 1;
    this.resizeObserver = new ResizeObserver(() => this.resize());
    this.resizeObserver.observe(canvas);
    this.darkMode = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    this.darkMode.addEventListener("change", this.redraw);
  }

  close() {
    this.resizeObserver.disconnect();
    this.darkMode.removeEventListener("change", this.redraw);
    cancelAnimationFrame(this.nextDraw);
    this.flying = [];
    this.isClosed = true;
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
    this.workersWidth = box.width < 420 ? 62 : 132;
    this.lanesEnd = this.width - this.workersWidth;
    this.blocksMax = Math.max(6, Math.floor((this.lanesEnd - 10) / PITCH));
    this.arrange();
    this.draw();
  }

  /** Draw a frame of the live stream: what waits, what runs, and what moved since the last one. */
  show(frame) {
    this.frame = frame;
    this.running = frame.running;
    if (!this.width) this.resize();
    else this.arrange();
    if (!reducedMotion.matches && !document.hidden) this.fly(frame.moves || []);
    this.draw();
    this.animate();
  }

  arrange() {
    if (!this.frame) return;
    const { lanes } = this.frame;
    const most = Math.max(...lanes.map((lane) => lane.ready));
    this.documentsPerBlock = most <= this.blocksMax ? 1 : roundUp(most / this.blocksMax);
    this.lanes = lanes.map((lane) => {
      const parts = laneParts(lane);
      if (this.documentsPerBlock === 1) return { parts, blocks: turnOrder(parts, this.blocksMax) };
      const blocks = parts.flatMap((part, index) =>
        Array(Math.max(1, Math.round(part.ready / this.documentsPerBlock))).fill(index),
      );
      return { parts, blocks: blocks.slice(0, this.blocksMax) };
    });
    const hasOthers = lanes.some((lane) => lane.others.ready > 0);
    this.onArrange(this.documentsPerBlock, hasOthers);
  }

  // -- positions -------------------------------------------------------------------------------------------------------

  get rowHeight() {
    return this.height / 9;
  }

  laneY(priority) {
    return this.rowHeight * (priority - 0.5);
  }

  /** The right end of a block, counted from the workers. */
  blockX(index) {
    return this.lanesEnd - 8 - index * PITCH;
  }

  /** Where the document of a running slot is drawn. */
  workerSlot(index) {
    const columns = this.workersWidth < 100 ? 2 : 4,
      size = Math.min(24, (this.workersWidth - 20) / columns);
    const rows = Math.ceil(Math.max(1, this.running.length) / columns);
    const x = this.lanesEnd + 1 + this.workersWidth / 2 + ((index % columns) - (columns - 1) / 2) * size;
    const y = this.height / 2 + (Math.floor(index / columns) - (rows - 1) / 2) * size;
    return { x, y, size };
  }

  // -- animation -------------------------------------------------------------------------------------------------------

  fly(moves) {
    const now = performance.now();
    for (const move of moves) {
      const count = Math.min(move.count, 10),
        path = this.flightPath(move);
      for (let index = 0; path && index < count && this.flying.length < FLYING_MAX; index++) {
        this.flying.push({
          ...path,
          colour: customerColour(move.customer),
          startMs: now + (FRAME_MS * index) / count,
          radius: move.count > 10 ? 5 : 4,
        });
      }
      if (move.what === "claimed" && this.documentsPerBlock === 1) {
        const offset = this.offsets[move.priority - 1] + move.count * PITCH;
        this.offsets[move.priority - 1] = Math.min(4 * PITCH, offset);
      }
    }
  }

  flightPath(move) {
    const y = this.laneY(move.priority),
      lane = this.lanes[move.priority - 1];
    if (!lane) return null;
    const isSame = (running) => running.customer === move.customer && running.priority === move.priority;
    const slot = this.workerSlot(Math.max(0, this.running.findIndex(isSame)));
    if (["submitted", "continued", "split", "joined", "retried", "postponed", "expired"].includes(move.what))
      return { fromX: 0, fromY: y, toX: Math.max(12, this.blockX(lane.blocks.length)), toY: y };
    if (move.what === "claimed") return { fromX: this.blockX(0), fromY: y, toX: slot.x, toY: slot.y };
    if (move.what === "taken_over") return null; // it goes on running
    if (move.what === "done") return { fromX: slot.x, fromY: slot.y, toX: this.width + 6, toY: slot.y };
    return { fromX: slot.x, fromY: slot.y, toX: slot.x, toY: this.height + 8 };
  }

  animate() {
    cancelAnimationFrame(this.nextDraw);
    if (this.isClosed || (!this.flying.length && this.offsets.every((offset) => offset < 0.5))) return;
    this.nextDraw = requestAnimationFrame(() => {
      this.offsets = this.offsets.map((offset) => offset * 0.88);
      this.draw();
      this.animate();
    });
  }

  // -- drawing ---------------------------------------------------------------------------------------------------------

  styleColour(name) {
    return getComputedStyle(this.canvas).getPropertyValue(name).trim() || "#888";
  }

  draw() {
    if (!this.pen || this.isClosed) return;
    const laneColour = this.styleColour("--road");
    this.pen.clearRect(0, 0, this.width, this.height);
    for (let priority = 1; priority <= 9; priority++) this.drawLane(priority, laneColour);
    this.drawWorkers();
    this.drawFlying();
  }

  drawLane(priority, laneColour) {
    const pen = this.pen,
      y = this.laneY(priority),
      laneHeight = this.rowHeight - 8,
      lane = this.lanes[priority - 1];
    pen.fillStyle = laneColour;
    fillRounded(pen, 0, y - laneHeight / 2, this.lanesEnd, laneHeight, 6);
    if (!lane) return;
    const height = Math.max(8, laneHeight - 10),
      top = y - height / 2,
      isSingle = this.documentsPerBlock === 1,
      offset = isSingle ? this.offsets[priority - 1] : 0;
    lane.blocks.forEach((part, index) => {
      const x = this.blockX(index) - BLOCK - offset;
      if (x < 0) return;
      pen.fillStyle = lane.parts[part].colour;
      if (isSingle) return fillRounded(pen, x, top, BLOCK, height, 2.5);
      pen.fillRect(x, top, PITCH + 0.5, height); // blocks of many documents touch each other: a pile
      pen.fillStyle = laneColour;
      pen.fillRect(x, top, 1, height);
    });
  }

  drawWorkers() {
    const pen = this.pen;
    pen.strokeStyle = this.styleColour("--line");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(this.lanesEnd + 8, 0.5, this.workersWidth - 14, this.height - 1, 10);
    pen.stroke();
    this.running.forEach((running, index) => {
      const { x, y, size } = this.workerSlot(index);
      pen.fillStyle = customerColour(running.customer);
      fillRounded(pen, x - size / 2 + 2, y - size / 2 + 2, size - 4, size - 4, 5);
    });
  }

  drawFlying() {
    const now = performance.now();
    this.flying = this.flying.filter((dot) => now < dot.startMs + FLIGHT_MS);
    for (const dot of this.flying) {
      if (now < dot.startMs) continue;
      const part = (now - dot.startMs) / FLIGHT_MS,
        eased = part * part * (3 - 2 * part);
      this.pen.fillStyle = dot.colour;
      this.pen.beginPath();
      const x = dot.fromX + (dot.toX - dot.fromX) * eased,
        y = dot.fromY + (dot.toY - dot.fromY) * eased;
      this.pen.arc(x, y, dot.radius, 0, 7);
      this.pen.fill();
    }
  }

  /** What is drawn at a point: {customer, customers, ready, priority, isRunning}, or null. */
  itemAt(x, y) {
    const priority = Math.floor(y / this.rowHeight) + 1,
      lane = this.lanes[priority - 1];
    if (x > this.lanesEnd) {
      const running = this.running.find((_, index) => {
        const slot = this.workerSlot(index);
        return Math.abs(slot.x - x) < slot.size / 2 && Math.abs(slot.y - y) < slot.size / 2;
      });
      return running ? { ...running, isRunning: true } : null;
    }
    const part = lane?.parts[lane.blocks[Math.floor((this.lanesEnd - 8 - x) / PITCH)]];
    return part ? { ...part, priority } : null;
  }
}

function fillRounded(pen, x, y, width, height, radius) {
  pen.beginPath();
  pen.roundRect(x, y, width, height, radius);
  pen.fill();
}
