// What tests and hooks are given besides the language: `Process`, and the `t` of a test.
//
// It runs before the script and keeps hold of what it uses, so that a script that changes built-ins harms itself alone.
// `record(name, passed, reason, stack, asked)` notes a check, `skip(reason)` that the test skips itself, `log(text)` a line
// of the console, and `ask(what, arguments)` waits for the daemon; texts are JSON.
(function (record, skip, log, ask, name) {
  "use strict";
  const { stringify, parse } = JSON;
  const { isArray } = Array;
  const { keys, defineProperty } = Object;
  const { apply } = Reflect;
  const [text, pattern, fault] = [String, RegExp, Error];
  // A method as a function of its object, whatever becomes of the prototype.
  const method = (of) => Function.prototype.call.bind(of);
  const includes = method(String.prototype.includes);
  const wellFormed = method(String.prototype.toWellFormed);
  const slice = method(String.prototype.slice);
  const test = method(RegExp.prototype.test);
  const find = method(RegExp.prototype.exec);
  const getTime = method(Date.prototype.getTime);
  const eachOfMap = method(Map.prototype.forEach);
  const eachOfSet = method(Set.prototype.forEach);
  const tag = method(Object.prototype.toString);
  const settle = Promise.resolve.bind(Promise);
  const then = method(Promise.prototype.then);
  const calls = new WeakMap();
  const [callOf, setCall] = [WeakMap.prototype.get.bind(calls), WeakMap.prototype.set.bind(calls)];
  const pause = {};
  let failed = false;

  // Half a character is none that others could read.
  const plain = (value) => wellFormed(text(value));

  const wait = (what, values) => {
    const answer = parse(ask(what, wellFormed(stringify(values))));
    if (answer.error === undefined) return answer.ok;
    const thrown = new fault(answer.error);
    thrown.name = "ProcessError";
    if (answer.call !== null) setCall(thrown, answer.call);
    throw thrown;
  };

  const show = (value) => {
    if (value === undefined) return "undefined";
    let shown;
    try {
      shown = typeof value === "object" || typeof value === "string" ? stringify(value) : text(value);
    } catch {}
    shown = plain(shown ?? typeof value);
    return shown.length > 300 ? plain(slice(shown, 0, 300)) + "…" : shown;
  };

  const isNil = (value) => value === null || value === undefined;

  const entries = (of, each) => {
    const list = [];
    let count = 0;
    each(of, (value, key) => defineProperty(list, count++, { value: { key, value }, enumerable: true }));
    return list;
  };

  // As JSON sees it, but that what JSON cannot hold is told apart too; null and undefined are the same.
  const equal = (one, other) => {
    if (one === other || (isNil(one) && isNil(other)) || (one !== one && other !== other)) return true;
    if (typeof one !== "object" || typeof other !== "object" || isNil(one) || isNil(other)) return false;
    const kind = tag(one);
    if (kind !== tag(other) || isArray(one) !== isArray(other)) return false;
    if (isArray(one)) {
      if (one.length !== other.length) return false;
      for (let index = 0; index < one.length; index++) if (!equal(one[index], other[index])) return false;
      return true;
    }
    switch (kind) {
      case "[object Date]":
        return equal(getTime(one), getTime(other));
      case "[object Map]":
        return equal(entries(one, eachOfMap), entries(other, eachOfMap));
      case "[object Set]":
        return equal(entries(one, eachOfSet), entries(other, eachOfSet));
      case "[object Number]":
      case "[object String]":
      case "[object Boolean]":
      case "[object RegExp]":
        return text(one) === text(other);
      case "[object Error]":
        return one.name === other.name && one.message === other.message;
      case "[object Promise]":
      case "[object Generator]":
      case "[object ArrayBuffer]":
      case "[object WeakMap]":
      case "[object WeakSet]":
        return false;
    }
    const names = keys(one);
    const others = keys(other);
    let more = 0;
    for (let index = 0; index < others.length; index++) if (other[others[index]] !== undefined) more += 1;
    for (let index = 0; index < names.length; index++) {
      const value = one[names[index]];
      if (value === undefined) continue;
      more -= 1;
      if (other[names[index]] === undefined || !equal(value, other[names[index]])) return false;
    }
    return more === 0;
  };

  // Whether it is in there; a text if that cannot be told.
  const contains = (whole, part) => {
    if (typeof whole === "string") {
      if (typeof part !== "string" && typeof part !== "number") return `expected to look for a text, not ${show(part)}`;
      return includes(whole, text(part));
    }
    if (!isArray(whole)) return `expected a text or a list, not ${show(whole)}`;
    for (let index = 0; index < whole.length; index++) if (equal(whole[index], part)) return true;
    return false;
  };

  const length = (value) => {
    if (isNil(value)) return undefined;
    if (typeof value.length === "number") return value.length;
    if (typeof value.size === "number") return value.size;
    return typeof value === "object" ? keys(value).length : undefined;
  };

  // A pattern may begin with flags, as in (?i)yes.
  const compile = (given) => {
    if (given instanceof pattern) {
      let flags = "";
      for (let index = 0; index < given.flags.length; index++) {
        if (given.flags[index] !== "g" && given.flags[index] !== "y") flags += given.flags[index];
      }
      return new pattern(given.source, flags);
    }
    const flags = find(/^\(\?([ims]+)\)/, text(given));
    return flags ? new pattern(slice(text(given), flags[0].length), flags[1]) : new pattern(text(given));
  };

  // Whether it matches; a text if that cannot be told.
  const matches = (value, given) => {
    if (typeof value !== "string") return `expected a text, not ${show(value)}`;
    if (typeof given !== "string" && !(given instanceof pattern)) return `expected a pattern, not ${show(given)}`;
    return test(compile(given), value);
  };

  const type = (value) => (value === null ? "null" : isArray(value) ? "array" : typeof value);

  // What a function throws, as `error`; a text if it cannot be told; undefined if it throws nothing.
  const thrown = (call) => {
    if (typeof call !== "function") return `expected a function, not ${show(call)}`;
    let ended;
    try {
      ended = call();
    } catch (error) {
      if (error === pause) throw error;
      return { error };
    }
    const isLater = !isNil(ended) && (typeof ended.then === "function" || tag(ended) === "[object Generator]");
    return isLater ? "the function ends later: await it, and check what came of it" : undefined;
  };

  // The value at a path; a text in a list if the path cannot be read.
  const at = (value, path) => {
    let rest = text(path);
    if (rest[0] === "$") rest = slice(rest, 1);
    let found = value;
    while (rest !== "") {
      const step = find(/^\.?([^.[\]*?()@'"]+)|^\[(\d+)\]|^\['([^']*)'\]/, rest);
      if (!step) return { unreadable: true };
      found = isNil(found) ? undefined : found[step[1] ?? step[2] ?? step[3]];
      rest = slice(rest, step[0].length);
    }
    return { found };
  };

  const number = (value) => (typeof value === "number" || typeof value === "bigint" ? value : NaN);

  const note = (name, passed, reason, message, asked) => {
    failed ||= !passed;
    const why = passed ? "" : isNil(message) ? reason : plain(message) + ": " + reason;
    let stack = "";
    try {
      stack = plain(new fault().stack);
    } catch {}
    record(name, passed, plain(why), stack, asked);
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
        if (typeof found === "string") return found;
        return found ? null : `expected ${show(part)} in ${show(whole)}`;
      },
    ],
    NotContains: [
      2,
      (whole, part) => {
        const found = contains(whole, part);
        if (typeof found === "string") return found;
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
    Match: [
      2,
      (value, given) => {
        const found = matches(value, given);
        if (typeof found === "string") return found;
        return found ? null : `expected ${show(value)} to match ${text(given)}`;
      },
    ],
    NotMatch: [
      2,
      (value, given) => {
        const found = matches(value, given);
        if (typeof found === "string") return found;
        return found ? `${show(value)} matches ${text(given)}` : null;
      },
    ],
    Error: [
      1,
      (value) => {
        if (typeof value !== "function") return isNil(value) ? `expected an error, not ${show(value)}` : null;
        const found = thrown(value);
        return typeof found === "string" ? found : found ? null : "expected the function to throw";
      },
    ],
    NoError: [
      1,
      (value) => {
        if (typeof value !== "function") {
          return isNil(value) ? null : `expected no error, not ${text(value?.message ?? value)}`;
        }
        const found = thrown(value);
        if (typeof found === "string") return found;
        return found ? `expected no error, not ${text(found.error?.message ?? found.error)}` : null;
      },
    ],
    Panic: [
      1,
      (call) => {
        const found = thrown(call);
        return typeof found === "string" ? found : found ? null : "expected the function to throw";
      },
    ],
    NoPanic: [
      1,
      (call) => {
        const found = thrown(call);
        if (typeof found === "string") return found;
        return found ? `expected the function not to throw ${text(found.error?.message ?? found.error)}` : null;
      },
    ],
    Type: [2, (value, wanted) => (type(value) === wanted ? null : `expected the type ${text(wanted)}, not ${type(value)}`)],
    JSONPath: [
      3,
      (value, path, wanted) => {
        const { found, unreadable } = at(value, path);
        if (unreadable) return `cannot read the path ${text(path)}: it may have keys and numbers, as in $.items[0].name`;
        return equal(found, wanted) ? null : `expected ${show(wanted)} at ${text(path)}, not ${show(found)}`;
      },
    ],
  };

  const assert = {};
  const methods = keys(checks);
  for (let index = 0; index < methods.length; index++) {
    const name = methods[index];
    const needed = checks[name][0];
    const check = checks[name][1];
    assert[name] = (...values) => {
      const missing = values.length < needed ? `${name} needs ${needed === 1 ? "a value" : `${needed} values`}` : null;
      const reason = missing ?? apply(check, undefined, values);
      note(name, reason === null, reason ?? "", values[needed]);
    };
  }
  assert.Agent = (response, id, options) => {
    if (isNil(response) || typeof id !== "string") {
      note("Agent", false, isNil(response) ? `expected an answer, not ${show(response)}` : "Agent needs the id of a validator");
      return { passed: false, reason: "nobody was asked" };
    }
    const said = typeof response === "string" ? response : (stringify(response) ?? text(response));
    const { passed, reason, score, asked } = wait("validator", [said, id, options ?? {}]);
    note("Agent", passed, reason, undefined, asked);
    return score === null ? { passed, reason } : { passed, reason, score };
  };

  const line = (values) => {
    let all = "";
    for (let index = 0; index < values.length; index++) {
      const value = values[index];
      all += (index > 0 ? " " : "") + (typeof value === "string" ? plain(value) : show(value));
    }
    return all;
  };
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
  defineProperty(t, "failed", { get: () => failed });

  // A test that stops itself has ended, and not gone wrong.
  const stopped = (error) => {
    if (error !== pause) throw error;
  };
  const guard = (run) => (...values) => {
    let ended;
    try {
      ended = apply(run, undefined, values);
    } catch (error) {
      return stopped(error);
    }
    if (tag(ended) === "[object Generator]") throw new fault("the test is a generator, and its body never runs");
    return then(settle(ended), () => null, stopped);
  };

  globalThis.Process = (process, ...values) => {
    const all = [process];
    for (let index = 0; index < values.length; index++) defineProperty(all, index + 1, { value: values[index], enumerable: true });
    return wait("process", all);
  };
  return { t, guard, callOf };
})
