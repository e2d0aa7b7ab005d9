// Reads traces with Perfetto's own trace processor and answers SQL queries about them, without a browser or a network.
//
//     node perfetto.mjs FOLDER
//
// FOLDER holds engine_bundle.js and trace_processor*.wasm. Each line of standard input is JSON: a list of traces and a
// list of queries. The line that is printed for it is JSON too: for each trace and each query its rows, each a list of
// values; or what went wrong, as text. The messages are those of Perfetto's trace_processor.proto.
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {createContext, runInContext} from 'node:vm';

const APPEND = 1, FINALIZE = 2, QUERY = 3, RESET = 11;
const folder = process.argv[2];

// A protobuf message is a list of [field number, bigint or Uint8Array].

function varint(value) {
  const bytes = [];
  for (let rest = BigInt.asUintN(64, BigInt(value)); ; rest >>= 7n) {
    if (rest < 128n) return Uint8Array.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

function encoded(fields) {
  return Buffer.concat(fields.flatMap(([number, value]) => value instanceof Uint8Array
    ? [varint(number << 3 | 2), varint(value.length), value]
    : [varint(number << 3), varint(value)]));
}

function* numbers(bytes, from = 0) {
  let value = 0n, shift = 0n;
  for (let i = from; i < bytes.length; i++) {
    value |= BigInt(bytes[i] & 127) << shift;
    shift += 7n;
    if (bytes[i] < 128) {
      yield [BigInt.asIntN(64, value), i + 1];
      value = shift = 0n;
    }
  }
}

function decoded(bytes) {
  const fields = [];
  const number = (at) => numbers(bytes, at).next().value;
  for (let at = 0; at < bytes.length;) {
    const [tag, after] = number(at);
    const kind = Number(tag & 7n);
    let end;
    if (kind === 0) {
      const [value, next] = number(after);
      fields.push([Number(tag >> 3n), value]);
      end = next;
    } else {
      const [length, start] = kind === 2 ? number(after) : [BigInt(kind === 1 ? 8 : 4), after];
      end = start + Number(length);
      fields.push([Number(tag >> 3n), bytes.subarray(start, end)]);
    }
    at = end;
  }
  return fields;
}

const all = (fields, number) => fields.filter(([n]) => n === number).map(([, value]) => value);
const text = (bytes) => new TextDecoder().decode(bytes);

// The engine is written for a web worker: it is given what it needs of one.

class Files {
  open(method, url) { this.url = url; }
  send() { this.response = Uint8Array.from(readFileSync(join(folder, this.url))).buffer; }
}

const worker = {
  WorkerGlobalScope: class {}, importScripts() {}, XMLHttpRequest: Files, location: {href: ''},
  WebAssembly, TypeError, TextDecoder, Uint8Array, performance, crypto, setTimeout, Date,
  console: {log() {}, warn() {}, error: console.error},
};
worker.self = createContext(worker);
runInContext(readFileSync(join(folder, 'engine_bundle.js'), 'utf-8'), worker);

const replies = [];
const port = {postMessage: (bytes) => replies.push(...all(decoded(bytes), 1).map(decoded))};
worker.onmessage({data: port});
await new Promise(setImmediate);

let sequence = 0;
function ask(request, ...fields) {
  replies.length = 0;
  const message = encoded([[1, ++sequence], [2, request], ...fields]);
  port.onmessage({data: Uint8Array.from(encoded([[1, message]]))});
  for (const reply of replies) {
    for (const error of all(reply, 5)) throw new Error(text(error));
  }
  return replies;
}

function rows(sql) {
  const columns = [], cells = [];
  for (const reply of ask(QUERY, [103, encoded([[1, Buffer.from(sql)]])])) {
    for (const result of all(reply, 203).map(decoded)) {
      for (const error of all(result, 2)) throw new Error(`${sql}: ${text(error)}`);
      columns.push(...all(result, 1));
      for (const batch of all(result, 3).map(decoded)) cells.push(...values(batch));
    }
  }
  const found = [];
  for (let i = 0; i < cells.length; i += columns.length) found.push(cells.slice(i, i + columns.length));
  return found;
}

function* values(batch) {
  const integers = all(batch, 2).flatMap((packed) => [...numbers(packed)].map(([value]) => Number(value)));
  const floats = all(batch, 3).flatMap((packed) =>
    Array.from({length: packed.length / 8}, (_, i) => Buffer.from(packed).readDoubleLE(8 * i)));
  const strings = all(batch, 5).flatMap((joined) => text(joined).split('\0').slice(0, -1));
  for (const kinds of all(batch, 1)) {
    for (const kind of kinds) yield [undefined, () => null, ...[integers, floats, strings].map((of) => () => of.shift())][kind]();
  }
}

function answers(trace, queries) {
  ask(RESET);
  ask(APPEND, [101, readFileSync(trace)]);
  ask(FINALIZE);
  return queries.map(rows);
}

for await (const line of createInterface({input: process.stdin})) {
  const [traces, queries] = JSON.parse(line);
  let answer;
  try {
    answer = traces.map((trace) => answers(trace, queries));
  } catch (error) {
    answer = String(error);
  }
  console.log(JSON.stringify(answer));
}
