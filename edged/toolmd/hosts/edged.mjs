// Calls other tools of the daemon from inside a TypeScript or JavaScript tool.
//
// For tools that declare `calls: [...]`:
//
//     import { call } from 'edged';
//     const reading = await call('sensor', { action: 'read', name: 'greenhouse' });
//     return { content: reading.content };
//
// One JSON line per request and reply on the inherited descriptor EDGED_CALLS_FD;
// processes of a tool take turns by a lock file.
import fs from 'node:fs';
import { promisify } from 'node:util';

const LOCK = process.env.EDGED_CALLS_LOCK;
const read = promisify(fs.read);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const waiting = new Map();
let last = 0;
let pump = null;

/** The called tool failed or may not be called; `code` is stable. */
export class ToolError extends Error {
  constructor(message, code = 'failed', result = null) {
    super(message);
    this.name = 'ToolError';
    this.code = code;
    this.result = result;
  }
}

/** Calls `tool` and returns its result, an object with `content`; rejects with ToolError. */
export async function call(tool, args = {}) {
  const descriptor = Number(process.env.EDGED_CALLS_FD ?? -1);
  if (descriptor < 0) {
    throw new ToolError(`this tool may not call others: add \`calls: [${tool}]\` to TOOL.md`, 'denied');
  }
  const id = `${process.pid}.${++last}`;
  const reply = new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
  reply.catch(() => {}); // may be rejected before it is awaited
  pump ??= start(descriptor);
  await pump.locked;
  // The line break before it ends the call of a caller that was killed while it wrote.
  let data = Buffer.from(`\n${JSON.stringify({ id, name: tool, arguments: args })}\n`);
  while (data.length) data = data.subarray(fs.writeSync(descriptor, data));
  const { error, result } = await reply;
  if (error) throw new ToolError(error.message, error.code);
  if (result.is_error || result.isError) throw new ToolError(text(result), 'failed', result);
  return result;
}

/** The text blocks of a result, joined by newlines. */
export function text(result) {
  return (result.content ?? []).filter((b) => b.type === 'text').map((b) => b.text).join('\n');
}

function start(descriptor) {
  const locked = lock();
  locked.then(() => receive(descriptor)).catch((error) => {
    pump = null;
    for (const { reject } of waiting.values()) reject(error);
    waiting.clear();
  });
  return { locked };
}

/**
 * Moves the token to a name of one's own; that of a dead holder is moved back first.
 * A name is of one process, so whoever comes too late moves nothing.
 */
async function lock() {
  const slash = LOCK.lastIndexOf('/');
  const prefix = `${LOCK.slice(slash + 1)}.`;
  while (!moved('free', process.pid)) {
    for (const name of fs.readdirSync(LOCK.slice(0, slash))) {
      const holder = name.slice(prefix.length);
      if (!name.startsWith(prefix) || holder === 'free' || fs.existsSync(`/proc/${holder}`)) continue;
      moved(holder, 'free');
    }
    await sleep(2);
  }
}

function moved(source, target) {
  try {
    fs.renameSync(`${LOCK}.${source}`, `${LOCK}.${target}`);
    return true;
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
    return false;
  }
}

/** Reads answers until none is awaited; who calls after that starts anew, at once. */
async function receive(descriptor) {
  const buffer = Buffer.alloc(1 << 16);
  let line = [];
  try {
    while (waiting.size) {
      const { bytesRead } = await read(descriptor, buffer, 0, buffer.length, null);
      if (!bytesRead) throw new ToolError('the daemon closed the connection', 'closed');
      let rest = Buffer.from(buffer.subarray(0, bytesRead));
      for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
        const reply = parsed(Buffer.concat([...line, rest.subarray(0, end)]).toString());
        line = [];
        rest = rest.subarray(end + 1);
        waiting.get(reply?.id)?.resolve(reply);
        waiting.delete(reply?.id);
      }
      line.push(rest);
    }
  } finally {
    pump = null;
    moved(process.pid, 'free');
  }
}

/** Lines that are not JSON are the rest of an answer whose caller was killed. */
function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}
