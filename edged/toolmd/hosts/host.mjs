// Runs one call of a TypeScript or JavaScript tool inside its sandbox.
//
// Started as `node /edged/host.mjs ENTRY NONCE`; the messages on descriptor 1 are
// those that host.py describes. What the tool prints goes to stderr.
import { getEventListeners } from 'node:events';
import fs from 'node:fs';
import { registerHooks } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';

const [entry, nonce] = process.argv.slice(2);
process.argv.splice(1, 3, entry);
const folder = entry.slice(0, entry.lastIndexOf('/') + 1);
const file = entry.slice(folder.length);
const FRAME_DATA = 4096 - 23; // PIPE_BUF less the header
const RESULT_MAX = 16 << 20;
const SIGNATURE = 'export async function execute(toolCallId, params, signal, onUpdate)';
const SHAPE = "return { content: [{ type: 'text', text: '...' }] }, with isError: true for a failure";
const pause = new Int32Array(new SharedArrayBuffer(4));
const bytes = { write: fs.writeSync, read: fs.readSync }; // before a tool can replace them
const controller = new AbortController();
let answered = false;
let called = false;

class BadResult extends Error {}

/** Repeats what answers EAGAIN: a child of the tool can make a shared pipe non-blocking. */
function patiently(step) {
  for (;;) {
    try {
      return step();
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(pause, 0, 0, 1);
    }
  }
}

function send(kind, data) {
  for (let start = 0; start === 0 || start < data.length; start += FRAME_DATA) {
    const part = data.subarray(start, start + FRAME_DATA);
    const more = start + FRAME_DATA < data.length ? '+' : '.';
    const head = `\x1e${nonce}${kind}${more}${part.length.toString(16).padStart(4, '0')}`;
    const frame = Buffer.concat([Buffer.from(head), part]);
    patiently(() => bytes.write(1, frame));
  }
}

function fail(message) {
  if (answered) return;
  answered = true;
  send('f', Buffer.from(message));
}

function encode(value, what) {
  let text;
  try {
    text = JSON.stringify(value) ?? 'null';
  } catch (error) {
    throw new BadResult(`${what} cannot be sent as JSON: ${error.message.split('\n')[0]}; ${SHAPE}`);
  }
  const data = Buffer.from(text);
  if (data.length > RESULT_MAX) {
    throw new BadResult(
      `${what} is ${data.length >> 20} MiB, more than the limit of ${RESULT_MAX >> 20} MiB: ` +
        'save it to a file and return its path',
    );
  }
  return data;
}

/** An error for the agent: name, message, causes, and the lines of the tool's own files. */
function explain(error) {
  if (error instanceof BadResult) return error.message;
  if (!(error instanceof Error)) return `the tool threw ${typeof error} ${String(error)}`;
  const stack = String(error.stack ?? '').replaceAll('file://', '');
  const frames = stack.split('\n').filter((line) => /^ {4}at /.test(line));
  let text = `${error.name}: ${error.message}`;
  const head = stack.split(/\n {4}at /)[0];
  if (head.startsWith(folder)) text = head; // a syntax error begins with its place
  const place = frames.filter((line) => line.includes(folder)).map((line) => `  ${line.trim()}`);
  for (let cause = error.cause; cause instanceof Error; cause = cause.cause) {
    place.push(`  caused by ${cause.name}: ${cause.message}`);
  }
  return [text, ...place].join('\n') + remedy(error);
}

/** What to do about the mistakes that tools from elsewhere often bring. */
function remedy(error) {
  if (String(error.code).includes('TYPESCRIPT_SYNTAX')) {
    return '\nNode removes types and does not translate TypeScript: write enums as const objects, ' +
      'namespaces as modules, and declare class fields instead of parameter properties.';
  }
  if (error.message === 'Bun is not defined') {
    return '\nTools run on Node.js: use node:fs, setTimeout and node:child_process in place of Bun.';
  }
  if (error.message.startsWith('require is not defined')) {
    return '\nThe file is an ES module: use import in place of require.';
  }
  return '';
}

function noExecute(module) {
  const exported = Object.keys(module).filter((name) => name !== 'module.exports');
  let text = `${file} has no export \`execute\`: write \`${SIGNATURE}\` at its top level and ${SHAPE}.`;
  const exports = module['module.exports'];
  const empty = typeof exports === 'object' && exports !== null && !Object.keys(exports).length;
  if (isCommonJs(module) && !empty) text += ' `module.exports` is not read: use `export`.';
  else if (typeof module.default === 'function' || module.default?.execute) {
    text += ' A default export is not read: export it by its name.';
  }
  const made = exported.find((name) => /^class\b/.test(String(module[name])));
  if (made) text += ` A class (\`${made}\`) is not called; a plain function is.`;
  if (empty || !exported.length) text += ' A program that reads `process.argv` is not a tool.';
  return text;
}

/** Whether the module was CommonJS by hand, not compiled from ES module syntax. */
function isCommonJs(module) {
  return 'module.exports' in module && !module['module.exports']?.__esModule;
}

/** Imports as TypeScript projects write them: `./helper`, `./helper.js` for helper.ts; `edged`. */
function resolve(specifier, context, next) {
  if (specifier === 'edged') return { url: new URL('edged.mjs', import.meta.url).href, shortCircuit: true };
  try {
    return next(specifier, context);
  } catch (error) {
    if (!/^\.{0,2}\//.test(specifier)) throw error;
    const stem = specifier.replace(/\.js$/, '');
    for (const ending of ['.ts', '.mjs', '.js', '/index.ts', '/index.js']) {
      try {
        return next(stem + ending, context);
      } catch {} // the first error says what the tool's author wrote
    }
    throw error;
  }
}

async function load() {
  registerHooks({ resolve });
  const module = await import(pathToFileURL(entry));
  if (typeof module.execute !== 'function' || isCommonJs(module)) throw new BadResult(noExecute(module));
  return module.execute;
}

/** The call from descriptor 0, to its end; null when there is none. */
function readCall() {
  const parts = [];
  const buffer = Buffer.alloc(1 << 16);
  for (;;) {
    const count = patiently(() => bytes.read(0, buffer));
    if (!count) break;
    parts.push(Buffer.from(buffer.subarray(0, count)));
  }
  fs.closeSync(0);
  fs.openSync('/dev/null', 'r'); // takes the lowest free descriptor, 0
  return parts.length ? JSON.parse(Buffer.concat(parts).toString()) : null;
}

/** Waits for file writes that the tool started and did not await. */
async function settle() {
  const end = Date.now() + 1000;
  const busy = () => process.getActiveResourcesInfo().some((name) => name.startsWith('FSReq'));
  while (busy() && Date.now() < end) await new Promise(setImmediate);
}

function onUpdate(partial) {
  const content = typeof partial === 'string' ? { content: [{ type: 'text', text: partial }] } : partial;
  if (!answered) send('u', encode(content, 'the update'));
}

async function main() {
  const execute = await load();
  send('R', Buffer.alloc(0));
  const call = readCall();
  if (!call) process.exit(0);
  called = true;
  process.on('SIGUSR2', () => controller.abort(new Error('the call was cancelled')));
  const result = encode(await execute(call.id, call.params, controller.signal, onUpdate), 'the result');
  await settle();
  if (answered) return;
  answered = true;
  send('r', result);
}

// Node 22 says that removing types is experimental, at every start.
const { emitWarning } = process;
process.emitWarning = (warning, ...rest) => {
  if (!String(warning).startsWith('Type Stripping')) emitWarning.call(process, warning, ...rest);
};
Object.defineProperty(process, 'stdout', { get: () => process.stderr, configurable: true });
process.on('uncaughtException', (error) => {
  fail(explain(error));
  process.exit(1);
});
process.on('exit', (status) => {
  if (called || status) fail(`the tool ended without a result (exit status ${status}); ${SHAPE}`);
});
process.on('beforeExit', () => {
  // Nothing is left to do: only a cancel can still come, which keeps no loop alive.
  if (getEventListeners(controller.signal, 'abort').length) setInterval(() => {}, 1 << 30);
  else fail('the tool has nothing left to do and no result: execute awaits what never happens');
});
main().then(
  () => process.exit(0),
  (error) => {
    fail(explain(error));
    process.exit(0);
  },
);
