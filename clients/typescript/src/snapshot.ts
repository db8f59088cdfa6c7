// The server side of `SnapshotProvider`: today's values for the `{{snapshot:path}}` tokens of a suite.
import { create } from "@bufbuild/protobuf";
import { type CaptureRequest, type CaptureResponse, CaptureResponseSchema } from "./gen/forge/agent/v1/snapshot_pb.js";
import { jsonOf } from "./json.js";
import type { Asked } from "./party.js";
import { StatusError, statusOf } from "./party.js";
import { fault } from "./values.js";

/**
 * Gives the value at a path such as `prices.AAPL`; undefined where there is none. An exception fails the capture, and
 * then the run has no case run: better no result than one against values of nobody knows when.
 */
export type Capture = (path: string, asked: Asked) => unknown;

/** Asks the function for each path that a run needs. */
export async function capture(ask: Capture, request: CaptureRequest, asked: Asked): Promise<CaptureResponse> {
  const response = create(CaptureResponseSchema);
  const values: Record<string, unknown> = {};
  for (const path of request.paths) {
    const value = await valueAt(ask, path, asked);
    if (value === undefined) response.unresolved[path] = fault({ message: path });
    else put(values, path, value);
  }
  response.data = jsonOf(values);
  return response;
}

async function valueAt(ask: Capture, path: string, asked: Asked): Promise<unknown> {
  try {
    return await ask(path, asked);
  } catch (error) {
    const { code, details } = statusOf(error);
    throw new StatusError(code, `${path}: ${details}`);
  }
}

/** Puts a value where a token with this path looks for it: `a.b[1]` is the second element of the list `b` in `a`. */
export function put(values: Record<string, unknown>, path: string, value: unknown): void {
  const steps = stepsOf(path);
  let place = values as Record<string | number, unknown>;
  steps.forEach((step, index) => {
    const following = steps[index + 1];
    if (Array.isArray(place)) while (place.length <= Number(step)) place.push(null);
    if (following === undefined) set(place, step, value);
    else if (!Object.hasOwn(place, step) || typeof place[step] !== "object" || place[step] === null) {
      set(place, step, typeof following === "number" ? [] : {});
    }
    place = place[step] as Record<string | number, unknown>;
  });
}

/** Sets a key of its own, whatever its name: `__proto__` is one like any other here. */
function set(place: object, key: string | number, value: unknown): void {
  Object.defineProperty(place, key, { value, enumerable: true, configurable: true, writable: true });
}

function stepsOf(path: string): (string | number)[] {
  return path.split(".").flatMap((segment) => {
    const indexed = /^([^[]*)\[(\d{1,4})\]$/.exec(segment);
    return indexed ? [indexed[1] as string, Number(indexed[2])] : [segment];
  });
}
