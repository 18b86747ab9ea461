/* Addresses of views, such as #/like/12,15?label=robin&page=2: every view has one, to go back to, to
   keep and to send. They stand behind the #, so that no server and no log ever sees them. */

export function parse(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [, view, what = ""] = path.match(/^([^/]*)\/?(.*)$/s);
  return { view: view || "start", what: decoded(what), options: Object.fromEntries(new URLSearchParams(query)) };
}

export function href(view, what = "", options = {}) {
  const given = Object.entries(options).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const path = what === "" ? view : `${view}/${encodeURIComponent(what)}`;
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${path}${query}`.replaceAll("%2C", ",");
}

/* The same view with some options changed; another page only where one is asked for. */
export function changed(address, options) {
  return href(address.view, address.what, { ...address.options, page: null, ...options });
}

export const page = (address) => Math.max(1, Number.parseInt(address.options.page, 10) || 1);

/* 1,2,3,9 as 1-3,9 */
export function packed(ids) {
  const runs = [];
  for (const id of [...ids].sort((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last && id === last[1] + 1) last[1] = id;
    else runs.push([id, id]);
  }
  return runs.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(",");
}

export function unpacked(text) {
  return text.split(",").flatMap((word) => {
    const [, first, last] = word.match(/^(\d{1,15})(?:-(\d{1,15}))?$/) ?? [];
    if (first === undefined) return [];
    const count = Math.min(1000, Number(last ?? first) - Number(first) + 1);
    return Array.from({ length: Math.max(0, count) }, (_, step) => Number(first) + step);
  });
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // not written by this page
  }
}
