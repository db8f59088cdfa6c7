// What tests and hooks are given besides the language: `Process`, and the `t` of a test.
//
// It runs before the script and keeps hold of what it uses, so that a script that changes built-ins harms itself alone.
// `record(name, passed, reason, stack, asked)` notes a check, `skip(reason)` that the test skips itself, `log(text)` a line
// of the console, and `ask(what, arguments)` waits for the daemon; texts are JSON.
(function (record, skip, log, ask, name) {
  "use strict";
  const { stringify, parse } = JSON;
  const { isArray, from } = Array;
  const { keys } = Object;
  const text = String;
  const pattern = RegExp;
  const fault = Error;
  const pause = {};
  let failed = false;

  const wait = (what, values) => {
    const { ok, error, call } = parse(ask(what, stringify(values, (_, value) => (value === undefined ? null : value))));
    if (error === undefined) return ok;
    const thrown = new fault(error);
    thrown.name = "ProcessError";
    if (call !== null) thrown.call = call;
    throw thrown;
  };

  const show = (value) => {
    if (value === undefined) return "undefined";
    let shown;
    try {
      shown = typeof value === "object" || typeof value === "string" ? stringify(value) : text(value);
    } catch {}
    shown ??= typeof value;
    return shown.length > 300 ? shown.slice(0, 300) + "…" : shown;
  };

  const isNil = (value) => value === null || value === undefined;

  // As JSON sees it, but that Dates, Maps, Sets and patterns are told apart too; null and undefined are the same.
  const equal = (one, other) => {
    if (one === other || (isNil(one) && isNil(other)) || (one !== one && other !== other)) return true;
    if (typeof one !== "object" || typeof other !== "object" || isNil(one) || isNil(other)) return false;
    if (isArray(one) || isArray(other)) {
      if (!isArray(one) || !isArray(other) || one.length !== other.length) return false;
      for (let index = 0; index < one.length; index++) if (!equal(one[index], other[index])) return false;
      return true;
    }
    for (const kind of [Map, Set]) {
      if (one instanceof kind || other instanceof kind) {
        return one instanceof kind && other instanceof kind && equal(from(one), from(other));
      }
    }
    for (const kind of [Date, RegExp]) {
      if (one instanceof kind || other instanceof kind) {
        return one instanceof kind && other instanceof kind && equal(+one, +other) && text(one) === text(other);
      }
    }
    const names = keys(one).filter((key) => one[key] !== undefined);
    if (names.length !== keys(other).filter((key) => other[key] !== undefined).length) return false;
    return names.every((key) => other[key] !== undefined && equal(one[key], other[key]));
  };

  const contains = (whole, part) => {
    if (typeof whole === "string") return whole.includes(text(part));
    if (isArray(whole)) return whole.some((item) => equal(item, part));
    return undefined;
  };

  const length = (value) => {
    if (isNil(value)) return undefined;
    if (typeof value.length === "number") return value.length;
    if (typeof value.size === "number") return value.size;
    return typeof value === "object" ? keys(value).length : undefined;
  };

  // A pattern may begin with flags, as in (?i)yes.
  const compile = (given) => {
    if (given instanceof pattern) return new pattern(given.source, given.flags.replace(/[gy]/g, ""));
    const flags = /^\(\?([ims]+)\)/.exec(text(given));
    return flags ? new pattern(text(given).slice(flags[0].length), flags[1]) : new pattern(text(given));
  };

  const matches = (value, given) => (isNil(value) ? false : compile(given).test(text(value)));

  const type = (value) => (value === null ? "null" : isArray(value) ? "array" : typeof value);

  const thrown = (call) => {
    try {
      call();
    } catch (error) {
      if (error === pause) throw error;
      return { error };
    }
    return undefined;
  };

  const at = (value, path) => {
    const steps = text(path).replace(/^\$\.?/, "").replace(/\[(\d+)\]/g, ".$1").split(".");
    let found = value;
    for (const step of steps) if (step !== "") found = isNil(found) ? undefined : found[step];
    return found;
  };

  const number = (value) => (typeof value === "number" || typeof value === "bigint" ? value : NaN);

  const note = (method, passed, reason, message, asked) => {
    failed ||= !passed;
    const why = passed ? "" : isNil(message) ? reason : text(message) + ": " + reason;
    record(method, passed, why, new fault().stack, asked);
  };

  // Each answers why the check does not hold; nothing when it does.
  const order = (sign, holds) => [
    2,
    (one, other) => (holds(number(one), number(other)) ? null : `expected ${show(one)} ${sign} ${show(other)}`),
  ];
  const checks = {
    True: [1, (value) => (value ? null : `expected true, not ${show(value)}`)],
    False: [1, (value) => (value ? `expected false, not ${show(value)}` : null)],
    Equal: [2, (one, other) => (equal(one, other) ? null : `expected ${show(other)}, not ${show(one)}`)],
    NotEqual: [2, (one, other) => (equal(one, other) ? `expected anything but ${show(other)}` : null)],
    Nil: [1, (value) => (isNil(value) ? null : `expected null or undefined, not ${show(value)}`)],
    NotNil: [1, (value) => (isNil(value) ? `expected a value, not ${show(value)}` : null)],
    Contains: [
      2,
      (whole, part) => {
        const found = contains(whole, part);
        if (found === undefined) return `expected a text or a list, not ${show(whole)}`;
        return found ? null : `expected ${show(part)} in ${show(whole)}`;
      },
    ],
    NotContains: [
      2,
      (whole, part) => {
        const found = contains(whole, part);
        if (found === undefined) return `expected a text or a list, not ${show(whole)}`;
        return found ? `found ${show(part)} in ${show(whole)}` : null;
      },
    ],
    Len: [
      2,
      (value, wanted) => {
        const found = length(value);
        if (found === undefined) return `${show(value)} has no length`;
        return found === wanted ? null : `expected the length ${show(wanted)}, not ${found}, of ${show(value)}`;
      },
    ],
    Greater: order(">", (one, other) => one > other),
    GreaterOrEqual: order(">=", (one, other) => one >= other),
    Less: order("<", (one, other) => one < other),
    LessOrEqual: order("<=", (one, other) => one <= other),
    Match: [2, (value, given) => (matches(value, given) ? null : `expected ${show(value)} to match ${text(given)}`)],
    NotMatch: [2, (value, given) => (matches(value, given) ? `${show(value)} matches ${text(given)}` : null)],
    Error: [
      1,
      (value) => {
        if (typeof value === "function") return thrown(value) ? null : "expected the function to throw";
        return isNil(value) ? `expected an error, not ${show(value)}` : null;
      },
    ],
    NoError: [
      1,
      (value) => {
        const error = typeof value === "function" ? thrown(value)?.error : value;
        return isNil(error) ? null : `expected no error, not ${text(error?.message ?? error)}`;
      },
    ],
    Panic: [1, (call) => (thrown(call) ? null : "expected the function to throw")],
    NoPanic: [
      1,
      (call) => {
        const found = thrown(call);
        return found ? `expected the function not to throw ${text(found.error?.message ?? found.error)}` : null;
      },
    ],
    Type: [2, (value, wanted) => (type(value) === wanted ? null : `expected the type ${text(wanted)}, not ${type(value)}`)],
    JSONPath: [
      3,
      (value, path, wanted) => {
        const found = at(value, path);
        return equal(found, wanted) ? null : `expected ${show(wanted)} at ${text(path)}, not ${show(found)}`;
      },
    ],
  };

  const assert = {};
  for (const method of keys(checks)) {
    const [needed, check] = checks[method];
    assert[method] = (...values) => {
      const missing = values.length < needed ? `${method} needs ${needed === 1 ? "a value" : `${needed} values`}` : null;
      const reason = missing ?? check(...values);
      note(method, reason === null, reason ?? "", values[needed]);
    };
  }
  assert.Agent = (response, id, options) => {
    const said = typeof response === "string" ? response : (stringify(response) ?? "");
    const { passed, reason, score, asked } = wait("validator", [said, text(id), options ?? {}]);
    note("Agent", passed, reason, undefined, asked);
    return score === null ? { passed, reason } : { passed, reason, score };
  };

  const line = (values) => values.map((value) => (typeof value === "string" ? value : show(value))).join(" ");
  const control = {
    log: (...values) => log(line(values)),
    error: (...values) => note("error", false, line(values)),
    fail: (...values) => note("fail", false, line(values) || "the test failed"),
    fatal: (...values) => {
      note("fatal", false, line(values) || "the test failed");
      throw pause;
    },
    skip: (...values) => {
      skip(line(values));
      throw pause;
    },
  };
  const t = { name, assert };
  for (const word of keys(control)) t[word] = t[word[0].toUpperCase() + word.slice(1)] = control[word];
  Object.defineProperty(t, "failed", { get: () => failed });

  // A test that stops itself has ended, and not gone wrong.
  const stopped = (error) => {
    if (error !== pause) throw error;
  };
  const guard = (test) => (...values) => {
    try {
      const ended = test(...values);
      return typeof ended?.then === "function" ? ended.then(() => null, stopped) : null;
    } catch (error) {
      return stopped(error);
    }
  };

  globalThis.Process = (process, ...values) => wait("process", [process, ...values]);
  return { t, guard };
})
