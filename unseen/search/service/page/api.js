/* The service as functions. Every failure is an Error whose message a person can read. */

async function asked(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service does not answer. Is it still running? Start `unseen serve` again and reload.");
  }
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(typeof answer.detail === "string" ? answer.detail : `answer ${response.status}`);
  }
  return response;
}

const json = async (path, options) => (await asked(path, options)).json();

function url(path, values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `${path}?${new URLSearchParams(given)}`;
}

const sent = (path, body) =>
  json(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });

export const metadata = () => json("/api/index");
export const labels = (q, options, signal) => json(url("/api/labels", { q, ...options }), { signal });
export const images = (options, signal) => json(url("/api/images", options), { signal });
export const metadataOf = (id, signal) => json(`/api/images/${id}/metadata`, { signal });
export const byIds = (ids, options, signal) => json(url("/api/search", { ids, ...options }), { signal });
export const otherById = (id, options, signal) => json(url(`/other/api/search/${id}`, options), { signal });
export const changes = (start, count, signal) => json(url("/api/changes", { start, count }), { signal });
export const label = (ids, name) => sent("/api/label", { ids, label: name });
export const remove = (ids) => sent("/api/remove", { ids });
export const thumbnail = (id, prefix = "") => `${prefix}/api/images/${id}/thumbnail`;
export const image = (id) => `/api/images/${id}`;
export const exported = (kind, ids) => url(`/api/export.${kind}`, { ids });

export const whyById = (id, query, box) => json(url(`/api/why/${id}`, { query, box }));
export const whyByImage = (id, body, box) =>
  json(url(`/api/why/${id}`, { box }), { method: "POST", body, headers: { "content-type": "application/octet-stream" } });

/* An image from its base64. */
export const webp = (text) => new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))], { type: "image/webp" });

export function byImages(blobs, options, signal) {
  const form = new FormData();
  for (const blob of blobs) form.append("file", blob, "image");
  const [body, headers] = blobs.length > 1 ? [form, {}] : [blobs[0], { "content-type": "application/octet-stream" }];
  return json(url("/api/search", options), { method: "POST", body, headers, signal });
}

export async function map(signal) {
  for (;;) {
    const response = await asked("/api/map", { signal });
    if (response.status !== 202) return response.json();
    await new Promise((done) => setTimeout(done, 700));
  }
}
