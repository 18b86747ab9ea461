/* Images that were selected, kept while the window is open. */

import { packed, unpacked } from "./address.js";

const KEY = "unseen.selection";
const MOST = 1000; // what one request may name

class Selection extends EventTarget {
  constructor() {
    super();
    this.ids = new Set(unpacked(sessionStorage.getItem(KEY) ?? ""));
  }

  get size() {
    return this.ids.size;
  }

  get text() {
    return packed(this.ids);
  }

  has(id) {
    return this.ids.has(id);
  }

  toggle(id) {
    this.set(this.has(id) ? [...this.ids].filter((each) => each !== id) : [...this.ids, id]);
  }

  add(ids) {
    this.set([...this.ids, ...ids]);
  }

  set(ids) {
    this.ids = new Set([...new Set(ids)].slice(0, MOST));
    sessionStorage.setItem(KEY, this.text);
    this.dispatchEvent(new Event("change"));
  }
}

export const selection = new Selection();
