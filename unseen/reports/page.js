// Draws the figures of a report. Their descriptions are JSON in the page; plotly travels gzipped, which
// makes the page 3 MB smaller, and is unpacked by the browser itself. Nothing is loaded from elsewhere.
"use strict";

const data = JSON.parse(document.getElementById("figure-data").textContent);
const narrow = matchMedia("(max-width: 760px)");
const settings = { displayModeBar: false, responsive: true, doubleClick: "reset" };

async function loadPlotly() {
  const text = document.getElementById("plotly").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

// "var(--accent)" becomes the style sheet's colour of the moment.
function themed(part) {
  if (typeof part === "string" && part.startsWith("var(")) {
    return getComputedStyle(document.documentElement).getPropertyValue(part.slice(4, -1)).trim();
  }
  if (Array.isArray(part)) return part.map(themed);
  if (part && typeof part === "object") {
    return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, themed(value)]));
  }
  return part;
}

function withDefaults(layout) {
  const axis = {
    gridcolor: "var(--line)", linecolor: "var(--line)", zeroline: false, automargin: true, fixedrange: true,
  };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: "var(--text)", size: 13, family: getComputedStyle(document.body).fontFamily },
    margin: { l: 48, r: 12, t: 24, b: 40 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: "var(--ground)", bordercolor: "var(--line)", font: { color: "var(--text)" } },
    showlegend: false,
    ...layout,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  };
}

function drawCurve(id) {
  const { data: traces, layout } = data[id];
  Plotly.react(id, themed(traces), themed(withDefaults(layout)), settings);
}

// ---- the map ----

function mapTraces(map) {
  const all = map.x.map((_, i) => i);
  const trace = (name, points, symbol, size) => ({
    type: "scatter", mode: "markers", name, hoverinfo: "none", customdata: points,
    x: points.map((i) => map.x[i]),
    y: points.map((i) => map.y[i]),
    marker: { symbol, size, color: points.map((i) => map.colors[map.classOf[i]]), opacity: 0.85, line: { width: 0 } },
  });
  const small = narrow.matches ? 2 : 0;
  const wrong = all.filter((i) => !map.right[i] && !map.alone[i]);
  const right = all.filter((i) => map.right[i] || map.alone[i]);
  return [
    trace("● nearest image is of the same class", right, "circle", 6 - small),
    trace("✕ nearest image is of another class", wrong, "x", 7 - small),
  ];
}

function drawMap() {
  const map = data.map;
  const axis = { visible: false, range: [-1.06, 1.06], fixedrange: narrow.matches };
  const layout = withDefaults({
    xaxis: axis,
    yaxis: { ...axis, scaleanchor: "x" },
    margin: { l: 0, r: 0, t: 0, b: 0 },
    hovermode: "closest",
    dragmode: narrow.matches ? false : "zoom",
  });
  return Plotly.react("map", mapTraces(map), themed(layout), settings);
}

// The drawn points with their places in the data; plotly keeps both on the nodes.
function* drawnPoints() {
  for (const trace of document.querySelectorAll("#map .scatterlayer .trace")) {
    const { customdata } = trace.__data__[0].trace;
    for (const node of trace.querySelectorAll(".point")) yield [node, customdata[node.__data__.i]];
  }
}

function light(classNumber) {
  document.querySelector(".map").classList.toggle("lit", classNumber !== null);
  for (const [node, item] of drawnPoints()) {
    node.classList.toggle("same", data.map.classOf[item] === classNumber);
  }
}

function fillTip(tip, item) {
  const map = data.map;
  const thumb = tip.querySelector(".thumb");
  thumb.hidden = !map.sheet; // features have no images
  const side = thumb.clientWidth;
  const [column, row] = [item % map.columns, Math.floor(item / map.columns)];
  thumb.style.backgroundSize = `${map.columns * side}px ${map.rows * side}px`;
  thumb.style.backgroundPosition = `${-column * side}px ${-row * side}px`;
  tip.querySelector("b").textContent = map.names[map.classOf[item]];
  const conclusion = tip.querySelector("span");
  conclusion.className = map.alone[item] ? "" : map.right[item] ? "right" : "wrong";
  conclusion.textContent = map.alone[item]
    ? "asks nothing: no other of its class, or no query"
    : map.right[item] ? "✓ nearest: same class" : `✗ nearest: ${map.nearest[item]}`;
}

function showTip(item) {
  const tip = document.querySelector(".map .tip");
  const node = [...drawnPoints()].find(([, drawn]) => drawn === item)?.[0];
  if (!node) return;
  tip.hidden = false;
  fillTip(tip, item);
  const frame = document.querySelector(".map").getBoundingClientRect();
  const point = node.getBoundingClientRect();
  const [x, y] = [point.left - frame.left, point.top - frame.top];
  const left = x + 20 + tip.offsetWidth > frame.width ? x - 12 - tip.offsetWidth : x + 20;
  tip.style.left = `${Math.max(0, left)}px`;
  tip.style.top = `${Math.max(0, Math.min(y - 40, frame.height - tip.offsetHeight))}px`;
}

function prepareMap() {
  const map = data.map;
  const plot = document.getElementById("map");
  const choice = document.getElementById("map-class");
  const tip = document.querySelector(".map .tip");
  if (map.sheet) tip.querySelector(".thumb").style.backgroundImage = `url("${map.sheet}")`;
  map.names
    .map((name, number) => [name, number])
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .forEach(([name, number]) => choice.add(new Option(name, number)));
  const chosen = () => (choice.value === "" ? null : Number(choice.value));
  const show = ({ points }) => {
    showTip(points[0].customdata);
    light(map.classOf[points[0].customdata]);
  };
  const hide = () => {
    tip.hidden = true;
    light(chosen());
  };
  plot.on("plotly_hover", show);
  plot.on("plotly_click", show); // a finger cannot hover
  plot.on("plotly_unhover", hide);
  plot.on("plotly_afterplot", hide);
  choice.addEventListener("change", hide);
  document.addEventListener("pointerdown", hide);
}

async function draw() {
  for (const id of Object.keys(data)) if (data[id] && id !== "map") drawCurve(id);
  if (data.map) await drawMap();
}

loadPlotly()
  .then(draw)
  .then(() => {
    if (data.map) prepareMap();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    narrow.addEventListener("change", draw);
    document.documentElement.dataset.drawn = "yes";
  })
  .catch((error) => {
    console.error(error);
    for (const plot of document.querySelectorAll(".plot")) {
      plot.textContent = "This figure needs a browser of 2023 or later with scripts allowed.";
    }
  });
