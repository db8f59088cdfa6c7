// The frameworks that adapters fit, in the versions that their tests ran with.
import { createRequire } from "node:module";
import { join } from "node:path";

/** Versions from `least` on, and below the major version `below`. */
export interface Peer {
  name: string;
  /** What is loaded of it. Left out: its main module. */
  path?: string;
  least: `${number}`;
  below: `${number}`;
}

/** Gives a package of a framework, or says in one line what to install. `user` is the function that needs it. */
export function requirePeer<T>(user: string, { name, path, least, below }: Peer): T {
  const wanted = `${name}@">=${least} <${below}"`;
  const [load, version] = find(name) ?? [];
  if (!load || version === undefined) throw new Error(`${user} needs ${wanted}: npm install ${wanted}`);
  const major = Number.parseInt(version, 10);
  if (major < Number(least) || major >= Number(below)) {
    throw new Error(`${user} needs ${wanted}, and ${version} is installed: npm install ${wanted}`);
  }
  return load(path === undefined ? name : `${name}/${path}`) as T;
}

function find(name: string): [NodeJS.Require, string] | undefined {
  // The program's own comes first: a package that is linked into a project stands elsewhere.
  for (const place of [join(process.cwd(), "_"), import.meta.url]) {
    try {
      const load = createRequire(place);
      return [load, load(`${name}/package.json`).version];
    } catch {
      // Not there.
    }
  }
  return undefined;
}
