// Takes an address for one server alone.
import { lookup } from "node:dns/promises";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";

/** Nobody can listen there, or somebody does. */
export class CannotListen extends Error {
  override readonly name = "CannotListen";

  constructor(listen: string, why: string) {
    super(`cannot listen on ${listen}: ${why}`);
  }
}

/** What listens, and where. */
export interface Listening {
  servers: Server[];
  /** HOST:PORT, with the real port if 0 was asked for. */
  address: string;
}

/**
 * Listens on HOST:PORT, on every address that the host stands for: on some of them alone it could not be told from a
 * second server on the others. Rejects with CannotListen.
 */
export async function listenOn(listen: string, connected: (socket: Socket) => void): Promise<Listening> {
  const [, host = "", digits = ""] = /^(.*):(\d{1,5})$/.exec(listen) ?? [];
  const isRight =
    digits !== "" && Number(digits) <= 65535 && (host === "" || !host.includes(":") || /^\[.*\]$/.test(host));
  if (!isRight) throw new CannotListen(listen, "write it like 127.0.0.1:50051");
  const servers: Server[] = [];
  const failed: NodeJS.ErrnoException[] = [];
  let port = Number(digits);
  for (const address of await addressesOf(listen, host.replace(/^\[|\]$/g, ""))) {
    try {
      const server = await listenAt(address, port, connected);
      servers.push(server);
      port = (server.address() as AddressInfo).port;
    } catch (error) {
      failed.push(error as NodeJS.ErrnoException);
    }
  }
  // A name may stand for an address that this machine has not.
  const error = failed.find(({ code }) => code === "EADDRINUSE") ?? (servers.length === 0 ? failed[0] : undefined);
  if (error) {
    for (const server of servers) server.close();
    throw new CannotListen(listen, reasonOf(error));
  }
  return { servers, address: `${host}:${port}` };
}

async function addressesOf(listen: string, host: string): Promise<string[]> {
  if (host === "") return ["::"];
  try {
    return (await lookup(host, { all: true })).map(({ address }) => address);
  } catch (error) {
    throw new CannotListen(listen, reasonOf(error as NodeJS.ErrnoException));
  }
}

function listenAt(host: string, port: number, connected: (socket: Socket) => void): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer({ noDelay: true, pauseOnConnect: false }, connected);
    server.once("error", reject);
    server.listen({ host, port, exclusive: true }, () => {
      server.off("error", reject);
      // What goes wrong with one connection, such as too many open files, is no reason to end.
      server.on("error", (error) => process.stderr.write(`forge-daemon: ${error.message}\n`));
      resolve(server);
    });
  });
}

const REASONS: Record<string, string> = {
  EADDRINUSE: "Address already in use",
  EACCES: "Permission denied",
  EADDRNOTAVAIL: "Cannot assign requested address",
  ENOTFOUND: "Name or service not known",
  EAI_AGAIN: "Temporary failure in name resolution",
};

function reasonOf({ code = "", message }: NodeJS.ErrnoException): string {
  return REASONS[code] ?? message;
}
