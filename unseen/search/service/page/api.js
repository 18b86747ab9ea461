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
    const told = await response.json().catch(() => ({}));
    const reason = typeof told.detail === "string" ? told.detail : `answer ${response.status}`;
    throw new Error(reason);
  }
  return response;
}

const json = async (path, options) => (await asked(path, options)).json();

function words(values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== "");
  return new URLSearchParams(given).toString();
}

export const facts = () => json("/api/index");
export const byId = (id, options, signal) => json(`/api/search/${id}?${words(options)}`, { signal });
export const byPicture = (blob, options, signal) =>
  json(`/api/search?${words(options)}`, {
    method: "POST",
    body: blob,
    headers: { "content-type": "application/octet-stream" },
    signal,
  });
export const thumbnail = (id, prefix = "") => `${prefix}/api/pictures/${id}/thumbnail`;
export const picture = (id) => `/api/pictures/${id}`;
export const changes = (start, count) => json(`/api/changes?${words({ start, count })}`);
export const otherById = (id, options) => json(`/other/api/search/${id}?${words(options)}`);

export async function map() {
  for (;;) {
    const response = await asked("/api/map");
    if (response.status !== 202) return response.json();
    await new Promise((done) => setTimeout(done, 700));
  }
}
