// @ts-check
/** Copying. */

/**
 * Put a text on the clipboard, also on pages that are files.
 * @param {string} text
 */
export async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return;
    } catch {
      // not allowed here: the old way may be
    }
  }
  const box = document.createElement("textarea");
  box.value = text;
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}
