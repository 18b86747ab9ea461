/* The interface, written from openapi.json. */

import { element } from "./results.js";

function route(path, method, told) {
  const block = element("section");
  block.append(element("h3", `${method.toUpperCase()} ${path}`), element("p", told.description ?? told.summary ?? ""));
  const table = element("table");
  for (const parameter of told.parameters ?? []) {
    const line = element("tr");
    const bounds = parameter.schema?.minimum === undefined ? "" : `${parameter.schema.minimum} to ${parameter.schema.maximum}`;
    line.append(element("th", parameter.name), element("td", parameter.in), element("td", parameter.description ?? ""), element("td", bounds));
    table.append(line);
  }
  if (table.rows.length) block.append(table);
  const query = path.replace("{id}", "1");
  const command = method === "post" ? `curl --data-binary @picture.jpg -H 'content-type: application/octet-stream' '${location.origin}${query}?k=5'` : `curl '${location.origin}${query}'`;
  block.append(element("pre", command));
  return block;
}

const place = document.getElementById("routes");
try {
  const told = await (await fetch("/openapi.json")).json();
  const routes = Object.entries(told.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, what]) => route(path, method, what)),
  );
  place.replaceChildren(...routes);
} catch {
  place.textContent = "The service does not answer.";
}
