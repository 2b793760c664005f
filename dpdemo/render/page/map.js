// The heat map of `dpdemo sweep`: balance of a full batch, batch sizes to the right, numbers of GPUs downwards.

const MAP = { gpus: 16, sizes: 64 };
// cividis, from its published values: made for readers with and without colour vision alike
const SCALE = ["#00204d", "#00336f", "#39486b", "#575c6d", "#707173", "#8a8779", "#a69d75", "#c4b56c", "#e4cf5b", "#ffea46"];

function mapStart() {
  return Math.max(1, state.batch - MAP.sizes / 2 - ((state.batch - 1) % 8));
}

/** A full batch of this size on so many GPUs; the weights hold for their own number of GPUs alone. */
function cellOf(size, gpus) {
  return groupOf(1, 1, size, gpus, gpus === state.gpus ? weightsNow() : null);
}

function drawMap() {
  const canvas = byId("map");
  const [across, down] = [canvas.width / MAP.sizes, canvas.height / MAP.gpus];
  const ink = canvas.getContext("2d");
  for (let gpus = 1; gpus <= MAP.gpus; gpus += 1) {
    for (let column = 0; column < MAP.sizes; column += 1) {
      const cell = cellOf(mapStart() + column, gpus);
      const [x, y] = [column * across, (gpus - 1) * down];
      ink.fillStyle = SCALE[Math.min(Math.floor(cell.balance ** 2 * SCALE.length), SCALE.length - 1)];
      ink.fillRect(x, y, across + 0.5, down + 0.5);
      if (cell.idle || cell.smallest === 1) drawMark(ink, cell, x, y, across, down);
    }
  }
  outline(ink, across, down);
  const last = mapStart() + MAP.sizes - 1;
  show("map-range", `Batch sizes ${span(mapStart(), last)}, left to right; 1 to ${MAP.gpus} GPUs, top to bottom.`);
  canvas.setAttribute("aria-label", `Heat map of balance. ${mapSays()}`);
  show("map-says", mapSays());
  show("map-rule", weightsNow() ? `The weights hold in the line of ${counted(state.gpus, "GPU")}; all others follow torch's own rule.` :
    "Every line follows torch's own rule.");
}

/** A stroke says that a GPU is idle, a dot that a sample is alone on its GPU: marks that need no colour. */
function drawMark(ink, cell, x, y, across, down) {
  const bright = cell.balance ** 2 > 0.5 ? "#000" : "#fff";
  ink.fillStyle = bright;
  ink.strokeStyle = bright;
  ink.lineWidth = 1.5;
  ink.beginPath();
  if (cell.idle) {
    ink.moveTo(x + 2, y + down - 3);
    ink.lineTo(x + across - 2, y + 3);
    ink.stroke();
  } else {
    ink.arc(x + across / 2, y + down / 2, 2.5, 0, 7);
    ink.fill();
  }
}

function outline(ink, across, down) {
  if (state.gpus > MAP.gpus) return;
  const [x, y] = [(state.batch - mapStart()) * across, (state.gpus - 1) * down];
  for (const [colour, width] of [["#000", 6], ["#fff", 2.5]]) {
    ink.strokeStyle = colour;
    ink.lineWidth = width;
    ink.strokeRect(x, y, across, down);
  }
}

function mapSays() {
  const cell = cellOf(state.batch, state.gpus);
  const idle = cell.idle ? `, ${counted(cell.idle, "GPU")} idle` : "";
  const lone = cell.smallest === 1 ? ", a sample alone on its GPU" : "";
  return `Batch ${grouped(state.batch)} on ${counted(state.gpus, "GPU")}: balance ${percent(cell.balance)}${idle}${lone}.`;
}

function pickInMap(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const column = Math.floor(((event.clientX - box.left) / box.width) * MAP.sizes);
  const row = Math.floor(((event.clientY - box.top) / box.height) * MAP.gpus);
  change({ batch: mapStart() + Math.min(Math.max(column, 0), MAP.sizes - 1),
    gpus: 1 + Math.min(Math.max(row, 0), MAP.gpus - 1) });
}

function moveInMap(event) {
  const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
  if (!move) return;
  event.preventDefault();
  change({ batch: bounded(state.batch + move[0], LIMITS.batch, state.batch),
    gpus: bounded(state.gpus + move[1], LIMITS.gpus, state.gpus) });
}
