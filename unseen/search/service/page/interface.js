/* The interface, written from openapi.json. */

import { element } from "./elements.js";

const ORDERS = { "/api/label": '{"ids": [1, 2], "label": "robin"}', "/api/remove": '{"ids": [1, 2]}' };

function command(path, method, parameters) {
  const needed = parameters.filter((each) => each.required && each.in === "query").map((each) => `${each.name}=1,2`);
  const address = `'${location.origin}${path.replace("{id}", "1")}${needed.length ? `?${needed.join("&")}` : ""}'`;
  if (method === "get") return path.includes("/export.") ? `curl -O ${address}` : `curl ${address}`;
  if (path in ORDERS) return `curl -H 'authorization: Bearer TOKEN' -H 'content-type: application/json' -d '${ORDERS[path]}' ${address}`;
  return `curl -F file=@image.jpg ${address}`;
}

function route(path, method, { description, summary, parameters = [] }) {
  const row = ({ name, in: place, description: text, schema = {} }) => {
    const bounds = schema.minimum === undefined ? "" : `${schema.minimum} to ${schema.maximum ?? schema.exclusiveMaximum - 1}`;
    return element("tr", {}, ...[place, text ?? "", bounds].reduce((cells, cell) => [...cells, element("td", {}, cell)], [element("th", { scope: "row" }, name)]));
  };
  return element("section", {},
    element("h2", {}, `${method.toUpperCase()} ${path}`),
    element("p", {}, description ?? summary ?? ""),
    parameters.length ? element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Parameters of ${method} ${path}` }, element("table", {}, element("tbody", {}, ...parameters.map(row)))) : null,
    element("pre", { tabindex: "0" }, command(path, method, parameters)));
}

const place = document.getElementById("routes");
try {
  const { paths } = await (await fetch("/openapi.json")).json();
  const routes = Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, what]) => route(path, method, what)));
  place.replaceChildren(...routes);
} catch {
  place.textContent = "The service does not answer.";
}
