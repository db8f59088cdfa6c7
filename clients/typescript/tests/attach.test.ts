// Agents that dial: what a daemon does that breaks the rules, goes away or refuses, and what must be left of it all.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { ServerCredentials, status } from "@grpc/grpc-js";
import { afterAll, describe, expect, test, vi } from "vitest";
import { type Agent, Attached, CannotAttach } from "../src/index.js";
import { InvokeResponseSchema } from "../src/proto.js";
import { played, type Stream } from "./daemon.js";

const folder = mkdtempSync(join(tmpdir(), "forge-attach-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Much more than anything takes on a machine that has nothing else to do. */
const within = { timeout: 15_000 };

const hello: Agent = { card: { id: "a" }, answer: (turn) => `Hello ${turn.userText}` };

/** Attaches an agent to a daemon that is played by hand, and welcomes it. */
async function welcomed(agent: Agent = hello, welcome: Parameters<Stream["welcome"]>[0] = {}) {
  const daemon = await played((stream, number) => stream.welcome({ sessionId: `session-${number}`, ...welcome }));
  const attached = new Attached(agent, daemon.address);
  const away: string[] = [];
  attached._onAway = (why) => away.push(why);
  await attached.start();
  return {
    daemon,
    attached,
    away,
    stream: daemon.streams[0] as Stream,
    async [Symbol.asyncDispose]() {
      await attached.stop(0);
      await daemon[Symbol.asyncDispose]();
    },
  };
}

describe("who it is, and where", () => {
  test("hello says what this process serves, and a token travels as metadata", async () => {
    await using daemon = await played((stream) => stream.welcome());
    const agent: Agent = { ...hello, card: { id: "a", version: "7" }, maxConcurrent: 3 };
    await using attached = new Attached(agent, `http://${daemon.address}/`, { ids: ["b", "b.user"], token: "s3cret" });
    await attached.start();
    const { agents, ...rest } = (daemon.streams[0] as Stream).hello();
    expect([attached.daemon, attached.names]).toEqual([daemon.address, ["b", "b.user"]]);
    expect(rest).toMatchObject({ minRevision: 1, maxRevision: 1, previousSessionId: "" });
    expect([rest.initialWindowBytes, rest.streamWindowBytes]).toEqual([256 * 1024, 4 * 1024 * 1024]);
    expect(agents.map(({ agentId }) => agentId)).toEqual(["b", "b.user"]);
    expect(agents[1]?.describe).toMatchObject({
      card: { agentId: "a", version: "7" },
      limits: { maxConcurrentInvocations: 3 },
    });
    expect(daemon.tokens).toEqual(["Bearer s3cret"]);
  });

  const address = "write the address like http://127.0.0.1:7460";
  test.each<[string, string | undefined, object, string]>([
    ["no daemon", undefined, {}, "none is named; give its address, such as http://127.0.0.1:7460, or set FORGE_DAEMON"],
    ["no port", "http://staging", {}, `cannot attach to http://staging: ${address}`],
    ["port 0", "127.0.0.1:0", {}, address],
    ["a path", "http://staging:1/x", {}, address],
    ["another scheme", "ftp://staging:1", {}, address],
    ["a user, who is not told", "http://me:pw@staging:1", {}, `cannot attach to http://…@staging:1: ${address}`],
    ["a token over plain text", "http://staging:1", { token: "x" }, "over plain text others could read the token"],
    ["an empty token", "local", { token: "" }, "the token is empty"],
    ["a token that no header can hold", "local", { token: "a\nb" }, "cannot attach to 127.0.0.1:7460: the token has"],
    ["id and ids", "local", { id: "a", ids: ["b"] }, "give id or ids, not both"],
    ["no names", "local", { ids: [] }, "one name or more"],
  ])("refused at start: %s", (_, daemon, options, message) => {
    vi.stubEnv("FORGE_DAEMON", undefined);
    expect(() => new Attached(hello, daemon, options)).toThrow(message);
    vi.unstubAllEnvs();
  });

  test("a token may travel to this machine, and over TLS; FORGE_DAEMON names the daemon", () => {
    for (const [daemon, at] of [
      ["https://staging.example.com", "staging.example.com:443"],
      ["grpcs://staging:8443", "staging:8443"],
      ["http://[::1]:7460", "[::1]:7460"],
      ["localhost:7460", "localhost:7460"],
      ["local", "127.0.0.1:7460"],
    ]) {
      vi.stubEnv("FORGE_DAEMON", daemon);
      expect(new Attached(hello, undefined, { token: "x" }).daemon).toBe(at);
    }
    vi.unstubAllEnvs();
  });
});

describe("refused by the daemon", () => {
  test.each([
    [status.INVALID_ARGUMENT, 'hello.agents[0].agent_id: "a b" is no name for an agent'],
    [status.FAILED_PRECONDITION, "REVISION_UNSUPPORTED: this daemon speaks revisions 2 to 3, the agent 1 to 1"],
    [status.UNAUTHENTICATED, "the token is unknown"],
    [status.ALREADY_EXISTS, "instance is attached already"],
    [status.UNIMPLEMENTED, "there is no such service"],
    [status.RESOURCE_EXHAUSTED, "WINDOW_OVERRUN: a frame was sent without credit for it"],
  ])("for good: %s %s", async (code, details) => {
    await using daemon = await played((stream) => stream.refuse(code, details));
    const attached = new Attached(hello, daemon.address);
    const refusal = new CannotAttach(daemon.address, `${status[code]}: ${details}`);
    await expect(attached.start()).rejects.toEqual(refusal);
    await expect(attached.waitForEnd()).rejects.toEqual(refusal);
    expect(daemon.streams.length).toBe(1);
  });

  test.each([
    ["is full", (stream: Stream) => stream.refuse(status.RESOURCE_EXHAUSTED, "too many are attached"), "too many are"],
    ["closes the stream", (stream: Stream) => stream.raw.end(), "the daemon closed the stream"],
    ["says something else first", (stream: Stream) => stream.invoke(), "its first frame is no welcome"],
  ])("for now: it %s", async (_, refuse, why) => {
    await using daemon = await played((stream, number) => (number === 1 ? refuse(stream) : stream.welcome()));
    await using attached = new Attached(hello, daemon.address);
    const away: string[] = [];
    attached._onAway = (said, pause) => {
      expect(pause).toBeLessThan(250);
      away.push(said);
    };
    await attached.start();
    expect(away).toEqual([expect.stringContaining(why)]);
  });
});

test("a daemon that says nothing is given up", async () => {
  await using daemon = await played((stream, number) => number === 2 && stream.welcome());
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const attached = new Attached(hello, daemon.address);
    const away = new Promise<string>((resolve) => {
      attached._onAway = resolve;
    });
    const started = attached.start();
    while (daemon.streams.length === 0) await new Promise(setImmediate);
    vi.advanceTimersByTime(9999);
    expect(await Promise.race([away, new Promise((resolve) => setImmediate(resolve, "not yet"))])).toBe("not yet");
    vi.advanceTimersByTime(1);
    expect(await away).toBe("no welcome within 10 s");
    vi.useRealTimers();
    await started;
    await attached.stop(0);
  } finally {
    vi.useRealTimers();
  }
});

describe("calls", () => {
  test("one that nobody reads holds up no other", async () => {
    const piece = "x".repeat(16 * 1024);
    const agent: Agent = {
      ...hello,
      async answer(turn) {
        if (turn.userText !== "much") return "little";
        for (let sent = 0; sent < 200; sent += 1) turn.say(piece);
        return undefined;
      },
    };
    await using at = await welcomed(agent);
    const { stream } = at;
    const unread = stream.invoke("much", { wantDeltas: true });
    const others = Array.from({ length: 199 }, () => stream.invoke("x"));
    await stream.until(() => others.every((callNo) => stream.end(callNo)));
    for (const callNo of others) expect(stream.end(callNo)?.fault).toBeUndefined();
    // So much went as there was credit for, and one message.
    const sent = stream.cost(unread, InvokeResponseSchema);
    expect(sent).toBeGreaterThanOrEqual(256 * 1024);
    expect(sent).toBeLessThan(256 * 1024 + piece.length + 200);
    expect(stream.end(unread)).toBeUndefined();
    stream.credit(0n, 8 * 1024 * 1024);
    stream.credit(unread, 8 * 1024 * 1024);
    await stream.until(() => stream.end(unread));
    expect(stream.events(unread).map(({ seq }) => Number(seq))).toEqual(Array.from({ length: 202 }, (_, n) => n + 1));
  });

  test("what a turn says and nobody reads has a bound", async () => {
    const agent: Agent = {
      ...hello,
      answer(turn) {
        for (let sent = 0; sent < 100; sent += 1) turn.log("x".repeat(1024 * 1024));
      },
    };
    await using at = await welcomed(agent);
    const { stream } = at;
    const callNo = stream.invoke();
    await stream.until(() => stream.events(callNo).length > 0);
    for (const of of [0n, callNo]) for (let given = 0; given < 8; given += 1) stream.credit(of, 16 * 1024 * 1024);
    while (!stream.end(callNo)) {
      const before = stream.frames.length;
      await stream.until(() => stream.frames.length > before);
      for (const of of [0n, callNo]) stream.credit(of, 4 * 1024 * 1024);
    }
    const events = stream.events(callNo);
    // One left at once.
    expect(events.filter(({ event }) => event.case === "log").length).toBe(65);
    expect(events.at(-1)?.event).toMatchObject({
      case: "finished",
      value: { error: { reason: "UNREAD", grpcCode: status.RESOURCE_EXHAUSTED } },
    });
  });

  test("the stream's credit holds for all calls together", async () => {
    await using at = await welcomed(hello, { streamWindowBytes: 1 });
    const { stream } = at;
    const calls = [stream.invoke("1"), stream.invoke("2")];
    await stream.until(() => stream.events(1n).length === 1);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(stream.frames.filter((frame) => frame.case === "reply").length).toBe(1);
    stream.credit(0n, 1_000_000);
    await stream.until(() => calls.every((callNo) => stream.end(callNo)));
    expect(calls.map((callNo) => stream.events(callNo).at(-1)?.event.case)).toEqual(["finished", "finished"]);
  });

  test("what comes is given back at once, whatever the daemon sends without credit", async () => {
    let release = () => {};
    const agent: Agent = { ...hello, answer: () => new Promise((resolve) => (release = () => resolve("done"))) };
    await using at = await welcomed(agent);
    const { stream } = at;
    const callNo = stream.invoke();
    const value = { form: { case: "raw" as const, value: new TextEncoder().encode(`"${"x".repeat(1_000_000)}"`) } };
    const toolResult = { callId: "none", outcome: { case: "result" as const, value } };
    const invoke = { frame: { case: "toolResult" as const, value: toolResult } };
    for (let sent = 0; sent < 16; sent += 1) stream.send({ case: "send", value: { callNo, invoke } });
    const back = (of: bigint) =>
      stream.frames.reduce(
        (sum, frame) => sum + (frame.case === "window" && frame.value.callNo === of ? frame.value.bytes : 0),
        0,
      );
    // The last of it is less than half a window.
    await stream.until(() => back(callNo) > 15_900_000 && back(0n) > 16_000_000 - 2 * 1024 * 1024);
    expect(Math.max(back(callNo), back(0n))).toBeLessThan(16_010_000);
    release();
    expect((await stream.until(() => stream.end(callNo))).fault).toBeUndefined();
  });

  test("each bad one ends by itself", async () => {
    await using at = await welcomed({ card: { id: "a" }, validator: () => true });
    const { stream } = at;
    const ended = async (callNo: bigint) => (await stream.until(() => stream.end(callNo)))?.fault;
    expect(await ended(stream.invoke("x", { agentId: "b" }))).toMatchObject({
      grpcCode: status.NOT_FOUND,
      message: "there is no agent b here",
    });
    expect(await ended(stream.invoke())).toMatchObject({ grpcCode: status.UNIMPLEMENTED });
    const open = (callNo: bigint, call: object) =>
      stream.send({ case: "open", value: { callNo, agentId: "a", call } as never });
    open(3n, { case: undefined });
    expect(await ended(3n)).toMatchObject({ grpcCode: status.UNIMPLEMENTED, message: "this call is not known" });
    open(4n, { case: "generate", value: {} });
    expect(await ended(4n)).toMatchObject({ message: "Generator.Generate is not served here" });
    open(5n, { case: "validate", value: {} });
    expect(await ended(5n)).toMatchObject({ grpcCode: status.INVALID_ARGUMENT, message: /criteria/ });
    open(6n, { case: "validate", value: { criteria: "good" } });
    expect(await ended(6n)).toBeUndefined();
    open(7n, { case: "describe", value: {} });
    expect(await ended(7n)).toBeUndefined();
    expect(stream.frames.at(-2)).toMatchObject({ case: "reply", value: { payload: { case: "describe" } } });
    expect(at.away).toEqual([]);
  });

  test("an answer that is too large for the daemon ends its call", async () => {
    const agent: Agent = { ...hello, answer: (turn) => "x".repeat(Number(turn.userText)) };
    await using at = await welcomed(agent, { maxMessageBytes: 1000 });
    const large = at.stream.invoke("2000");
    const small = at.stream.invoke("20");
    expect((await at.stream.until(() => at.stream.end(large))).fault).toMatchObject({
      grpcCode: status.RESOURCE_EXHAUSTED,
      message: expect.stringMatching(/^a message has 2\d\d\d bytes, and the daemon takes 1000$/),
    });
    expect((await at.stream.until(() => at.stream.end(small))).fault).toBeUndefined();
  });

  test("one that is given up, or whose time is over, stops, and nothing more is sent for it", async () => {
    const stopped: unknown[] = [];
    const agent: Agent = {
      ...hello,
      answer: (turn) =>
        new Promise((_, reject) =>
          turn.signal.addEventListener("abort", () => {
            stopped.push(turn.userText);
            reject(turn.signal.reason);
          }),
        ),
    };
    await using at = await welcomed(agent);
    const { stream } = at;
    const callNo = stream.invoke("given up");
    await stream.until(() => stream.events(callNo).length > 0);
    stream.send({ case: "reset", value: { callNo } });
    await vi.waitFor(() => expect(stopped).toEqual(["given up"]), within);
    const timed = stream.invoke("too late", { timeoutMs: 30 });
    expect((await stream.until(() => stream.end(timed))).fault).toMatchObject({ grpcCode: status.DEADLINE_EXCEEDED });
    await vi.waitFor(() => expect(stopped).toEqual(["given up", "too late"]), within);
    // What comes late for it is left alone.
    stream.send({ case: "halfClose", value: { callNo } });
    stream.credit(callNo, 5);
    stream.send({ case: "ping", value: { nonce: 5n } });
    await stream.until(() => stream.frames.some((frame) => frame.case === "pong" && frame.value.nonce === 5n));
    expect([stream.end(callNo), at.away]).toEqual([undefined, []]);
  });
});

describe("streams that break", () => {
  const wrong: [string, (stream: Stream) => void, string][] = [
    ["a second welcome", (stream) => stream.welcome(), "a second welcome"],
    ["a number that came before", (stream) => void stream.invoke("x", { callNo: 1n }), "a call number came again"],
    ["too much credit", (stream) => stream.credit(0n, 2 ** 32 - 1), "more credit was given than there can be"],
  ];
  test.each(wrong)("the daemon breaks a rule: %s", async (_, break_, why) => {
    await using at = await welcomed();
    at.stream.invoke();
    break_(at.stream);
    await vi.waitFor(() => expect(at.daemon.streams.length).toBe(2), within);
    expect(at.away).toEqual([`the daemon broke the rules of the stream: ${why}`]);
  });

  test("it comes back as the same, and what was open is over", async () => {
    let aborted: unknown;
    const agent: Agent = {
      ...hello,
      answer: (turn) =>
        new Promise((_, reject) =>
          turn.signal.addEventListener("abort", () => {
            aborted = turn.signal.reason;
            reject(aborted);
          }),
        ),
    };
    await using at = await welcomed(agent);
    const callNo = at.stream.invoke();
    await at.stream.until(() => at.stream.events(callNo).length > 0);
    at.stream.refuse(status.UNAVAILABLE, "the daemon is shutting down");
    await vi.waitFor(() => expect(at.daemon.streams[1]?.frames.length).toBe(1), within);
    const [first, second] = at.daemon.streams.map((stream) => stream.hello());
    expect(second).toMatchObject({ instanceId: first?.instanceId, previousSessionId: "session-1" });
    expect([aborted, at.away]).toEqual([
      expect.objectContaining({ message: "the call was cancelled" }),
      ["the daemon is shutting down"],
    ]);
  });

  test("a daemon of which nothing is heard is gone", async () => {
    await using at = await welcomed(hello, { pingInterval: { seconds: 0n, nanos: 20_000_000 } as never });
    await vi.waitFor(() => expect(at.daemon.streams.length).toBe(2), within);
    expect(at.away[0]).toBe("nothing is heard of the daemon");
  });
});

describe("leaving", () => {
  test("open calls end, those that crossed the drain were not delivered, and the stream is closed", async () => {
    let release = () => {};
    const agent: Agent = {
      ...hello,
      answer: () => new Promise((resolve) => (release = () => resolve("in peace"))),
    };
    await using at = await welcomed(agent);
    const { stream } = at;
    stream.lets = false;
    const open = stream.invoke();
    await stream.until(() => stream.events(open).length > 0);
    const stopping = at.attached.stop();
    await stream.until(() => stream.frames.at(-1)?.case === "drain");
    const crossed = stream.invoke();
    expect((await stream.until(() => stream.end(crossed))).fault).toMatchObject({
      grpcCode: status.UNAVAILABLE,
      reason: "NOT_DELIVERED",
    });
    stream.send({ case: "drainAck", value: { lastCallNo: crossed } });
    release();
    await stream.until(() => stream.isEnded);
    await stopping;
    await at.attached.waitForEnd();
    expect(stream.events(crossed)).toEqual([]);
    expect([stream.events(open).at(-1)?.event.case, stream.end(open)?.fault]).toEqual(["finished", undefined]);
  });

  test("a daemon that says nothing, and a turn that never ends, are not waited for", async () => {
    await using at = await welcomed({ ...hello, answer: () => new Promise(() => {}) });
    at.stream.lets = false;
    at.stream.invoke();
    await at.stream.until(() => at.stream.events(1n).length > 0);
    const began = performance.now();
    await at.attached.stop(50);
    expect(performance.now() - began).toBeLessThan(3000);
  });
});

describe("processes", () => {
  const programs = dirname(process.env.FORGECTL ?? "");
  const index = JSON.stringify(new URL("../src/index.ts", import.meta.url).pathname);

  /** A program, and its lines. */
  function run(program: string, args: string[], env: NodeJS.ProcessEnv = {}) {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
    const [said, wrong]: [string[], string[]] = [[], []];
    createInterface(child.stdout).on("line", (line) => said.push(line));
    createInterface(child.stderr).on("line", (line) => wrong.push(line));
    return { child, said, wrong, exit: once(child, "exit") as Promise<[number | null]> };
  }

  const agent = (daemon: string, answer: string, id = "hello", env: NodeJS.ProcessEnv = {}) => {
    const code = `import { attach } from ${index}; await attach({ card: { id: "${id}" }, answer: ${answer} }, "${daemon}");`;
    return run(process.execPath, ["--import", "tsx", "--input-type=module", "-e", code], env);
  };

  async function kill({ child, exit }: { child: ChildProcess; exit: Promise<unknown> }, signal: NodeJS.Signals) {
    child.kill(signal);
    return await exit;
  }

  async function daemonAt(listen: string) {
    const daemon = run(join(programs, "forge-daemon"), ["--listen", listen, "--data-dir", join(folder, "data")]);
    await vi.waitFor(() => expect(daemon.said.length).toBe(1), within);
    return { ...daemon, address: (daemon.said[0] as string).replace("listening on ", "") };
  }

  test("a daemon that dies and comes back, and an orderly end", async () => {
    writeFileSync(
      join(folder, "hello.golden.json"),
      JSON.stringify([{ id: "a", description: "a", input: { message: "Ada" }, expect: { responseContains: ["Ada"] } }]),
    );
    const hello = (address: string) =>
      run(process.env.FORGECTL ?? "forgectl", [
        ...["run", join(folder, "hello.golden.json"), "-n", "hello", "--daemon", `http://${address}`],
        ...["--output-dir", folder, "--quiet"],
      ]);
    const first = await daemonAt("127.0.0.1:0");
    const line = `attached to ${first.address} as hello`;
    const attached = agent(
      first.address,
      "async (turn) => { await new Promise((go) => setTimeout(go, 300)); return turn.userText; }",
    );
    await vi.waitFor(() => expect(attached.said).toEqual([line]), within);
    expect(await hello(first.address).exit).toEqual([0, null]);
    await kill(first, "SIGKILL");
    await vi.waitFor(() => expect(attached.wrong.length).toBeGreaterThan(1), within);
    expect(attached.wrong.at(-1)).toMatch(
      /^not attached, trying again in \d+ ms: connect ECONNREFUSED 127\.0\.0\.1:\d+$/,
    );
    const second = await daemonAt(first.address);
    await vi.waitFor(() => expect(attached.said).toEqual([line, line]), within);
    // It is asked to end while it answers.
    const running = hello(first.address);
    await vi.waitFor(
      () =>
        expect(
          spawnSync(process.env.FORGECTL ?? "forgectl", ["agents", "list", "--daemon", `http://${first.address}`], {
            encoding: "utf8",
          }).stdout,
        ).toContain("255 of 256 slots free"),
      { ...within, interval: 20 },
    );
    expect(await kill(attached, "SIGTERM")).toEqual([0, null]);
    expect(await running.exit).toEqual([0, null]);
    await kill(second, "SIGTERM");
  }, 60_000);

  test("over TLS, as far as the certificate is trusted", async () => {
    const [key, certificate] = ["key", "pem"].map(
      (ending) => new URL(`tls/localhost.${ending}`, import.meta.url).pathname,
    );
    const pair = { private_key: readFileSync(key as string), cert_chain: readFileSync(certificate as string) };
    await using daemon = await played((stream) => stream.welcome(), ServerCredentials.createSsl(null, [pair]));
    const at = `localhost:${daemon.address.split(":").pop()}`;
    const stranger = agent(`https://${at}`, "() => ''");
    const attached = agent(`https://${at}`, "() => ''", "hello", { GRPC_DEFAULT_SSL_ROOTS_FILE_PATH: certificate });
    await vi.waitFor(() => expect(attached.said).toEqual([`attached to ${at} as hello`]), within);
    await vi.waitFor(() => expect(stranger.wrong.length).toBeGreaterThan(0), within);
    expect([stranger.wrong[0], stranger.said]).toEqual([
      expect.stringMatching(/^not attached.*self-signed certificate/),
      [],
    ]);
    expect(await kill(stranger, "SIGTERM")).toEqual([0, null]);
    expect(await kill(attached, "SIGTERM")).toEqual([0, null]);
  }, 60_000);

  test("a name that the daemon does not take ends the process with a line", async () => {
    const daemon = await daemonAt("127.0.0.1:0");
    const refused = agent(daemon.address, "() => ''", "my agent");
    expect(await refused.exit).toEqual([1, null]);
    await vi.waitFor(() => expect(refused.wrong.length).toBe(1), within);
    expect(refused.wrong[0]).toMatch(
      /^cannot attach to 127\.0\.0\.1:\d+: INVALID_ARGUMENT: hello\.agents\[0\]\.agent_id: "my agent" is no name for an agent/,
    );
    expect(refused.said).toEqual([]);
    await kill(daemon, "SIGTERM");
  }, 60_000);
});
