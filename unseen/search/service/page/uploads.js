/* Images that somebody brought: kept in this window alone, under a number for the address. */

const LARGEST = 1600; // longer sides are scaled down before they are sent
const MOST = 8;
const kept = new Map();

export const find = (number) => kept.get(number);

/* The number under which these are kept. Raises an Error for what is no image. */
export async function keep(files) {
  const images = [];
  for (const file of files.slice(0, MOST)) {
    let bitmap;
    try {
      bitmap = await createImageBitmap(file);
    } catch {
      throw new Error("This is no image that can be read here: choose a JPEG, PNG, WebP, GIF or BMP file.");
    }
    images.push({ blob: await reduced(file, bitmap), bitmap });
  }
  const number = String(kept.size + 1);
  kept.set(number, images);
  return number;
}

async function reduced(file, bitmap) {
  const scale = LARGEST / Math.max(bitmap.width, bitmap.height);
  if (scale >= 1) return file;
  const canvas = new OffscreenCanvas(Math.round(bitmap.width * scale), Math.round(bitmap.height * scale));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
}
