// What all parts of the page are drawn with.

/** Makes an element: its attributes, then its children, which are elements or texts. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") element.addEventListener("click", value);
    else if (key === "width") element.style.setProperty("--share", value);
    else if (value !== false && value != null) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

function show(id, ...children) {
  byId(id).replaceChildren(...children);
}

const counted = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : noun.endsWith("ch") ? "es" : "s"}`;
const grouped = (number) => number.toLocaleString("en-US");
const percent = (ratio) => `${(100 * ratio).toFixed(1).replace(/\.0$/, "")} %`;
const times = (ratio) => `${ratio.toFixed(2).replace(/\.?0+$/, "")} ×`;
const gpuName = (gpu) => `cuda:${gpu}`;
const span = (first, last) => (first === last ? grouped(first) : `${grouped(first)}–${grouped(last)}`);

const HUES = 12;

/** The colour of a GPU; beyond the last they begin again, so a label always has the number too. */
const hueOf = (gpu) => `hue${gpu % HUES}`;

/** A bar whose length is a share of the largest chunk, perhaps with a label in it. */
function bar(rows, largest, gpu, label = "") {
  return make("span", { class: `bar ${hueOf(gpu)}`, width: rows / largest, "aria-hidden": "true" }, label);
}

/** A table: what its columns are called, then its rows, whose first cell is a heading. */
function table(caption, head, rows) {
  return make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...rows.map(([first, ...cells]) => make("tr", {}, make("th", { scope: "row" }, first),
      ...cells.map((cell) => make("td", {}, ...[cell].flat()))))));
}
