// The case that the page shows: read from the controls and the URL's hash, and written back to both.

const LIMITS = { batch: [1, 100000], data: [1, 1000000000], gpus: [1, 128] };
const STEPS = ["batch", "scatter", "replicate", "parallel_apply", "gather"];
const byId = (id) => document.getElementById(id);
const page = JSON.parse(byId("page-data").textContent);
const state = { ...page.start, batchNumber: 1, step: 0, sample: 0, predicting: false };
let epoch = null;

function bounded(text, [least, most], otherwise) {
  const number = Number(String(text).trim() || NaN);
  return Number.isInteger(number) ? Math.min(Math.max(number, least), most) : otherwise;
}

/** Reads `1,2,2` or `0.5,1x7` as whole numbers in the same proportions; an error is a text. */
function readWeights(text, gpus) {
  const parts = [];
  for (const part of text.split(",").map((piece) => piece.trim())) {
    const found = /^(\d{1,4})(?:\.(\d{1,3}))?(?:x([1-9]\d{0,2}))?$/.exec(part);
    if (!found) return "expected numbers such as 1,2,2 or 0.5,1x7";
    const thousandths = Number(found[1]) * 1000 + Number((found[2] || "").padEnd(3, "0"));
    parts.push(...Array(Number(found[3] || 1)).fill(thousandths));
  }
  if (parts.length !== gpus) return `expected a weight for each of the ${gpus} GPUs, got ${parts.length}`;
  const common = parts.reduce(divisor, 0);
  return common ? parts.map((part) => part / common) : "expected at least one weight above 0";
}

function divisor(one, other) {
  return other ? divisor(other, one % other) : one;
}

/** The weights as numbers, or null where torch's own rule holds. */
function weightsNow() {
  const read = state.weights ? readWeights(state.weights, state.gpus) : null;
  return typeof read === "string" ? null : read;
}

function compute() {
  epoch = simulate({ batchSize: state.batch, dataSize: state.data, gpus: state.gpus, dropLast: state.dropLast,
    weights: weightsNow() });
  state.batchNumber = Math.min(Math.max(state.batchNumber, 1), Math.max(epoch.batches, 1));
  state.sample = Math.min(state.sample, state.data - 1);
}

/** The group of the batch that is shown; undefined where drop_last leaves none. */
function groupNow() {
  return epoch.groups.find((group) => state.batchNumber < group.first + group.count);
}

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of ["batch", "data", "gpus"]) state[name] = bounded(given.get(name) ?? "", LIMITS[name], state[name]);
  if (given.has("weights")) state.weights = given.get("weights").slice(0, 2000);
  if (given.has("drop_last")) state.dropLast = given.get("drop_last") === "1";
  state.batchNumber = bounded(given.get("number") ?? "", [1, Number.MAX_SAFE_INTEGER], state.batchNumber);
  state.step = bounded(given.get("step") ?? "", [0, STEPS.length - 1], state.step);
  state.sample = bounded(given.get("sample") ?? "", [0, Number.MAX_SAFE_INTEGER], state.sample);
  if (given.has("predict")) state.predicting = given.get("predict") === "1";
}

function writeHash() {
  const shown = new URLSearchParams({ batch: state.batch, data: state.data, gpus: state.gpus });
  if (state.weights) shown.set("weights", state.weights);
  shown.set("drop_last", state.dropLast ? "1" : "0");
  shown.set("number", state.batchNumber);
  shown.set("step", state.step);
  shown.set("sample", state.sample);
  if (state.predicting) shown.set("predict", "1");
  const hash = `#${shown}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}
