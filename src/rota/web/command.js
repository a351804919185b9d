// @ts-check
/** A job as the command that submits the same. */

/** @param {string} text */
export function quoted(text) {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * @param {Record<string, any>} job as the API takes it
 * @returns {string}
 */
export function asCommand(job) {
  const parts = ["rota submit"];
  const { run, resources = {}, name, queue, hold, ...rest } = job;
  const { gpus, ...others } = resources;
  if (gpus !== undefined) parts.push(`--gpus ${typeof gpus === "object" ? `${gpus.min}-${gpus.max}` : gpus}`);
  if (name) parts.push(`--name ${quoted(name)}`);
  if (queue) parts.push(`--queue ${quoted(queue)}`);
  if (hold) parts.push("--hold");
  for (const [key, value] of Object.entries(others)) parts.push(`--set ${quoted(`resources.${key}=${scalar(value)}`)}`);
  for (const [key, value] of Object.entries(rest)) {
    if (key === "workdir" || value === null || value === undefined) continue;
    if (Array.isArray(value)) parts.push(`--set ${quoted(`${key}=[${value.map(scalar).join(", ")}]`)}`);
    else if (typeof value === "object") {
      for (const [inner, each] of Object.entries(value)) parts.push(`--set ${quoted(`${key}.${inner}=${scalar(each)}`)}`);
    } else parts.push(`--set ${quoted(`${key}=${scalar(value)}`)}`);
  }
  return `${parts.join(" ")} -- sh -c ${quoted(run || "")}`;
}

/** @param {any} value */
function scalar(value) {
  return typeof value === "string" && /^[-+.0-9]|^(true|false|null|yes|no)$|[:#{}[\],]/i.test(value) ? JSON.stringify(value) : String(value);
}
