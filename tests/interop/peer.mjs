// A stock Yjs client with the real y-websocket: `node peer.mjs <major version of y-websocket> <url> <board> [client id]`.
// Reads commands from stdin and answers each on stdout, both one JSON value a line.

import process from 'node:process'
import readline from 'node:readline'
import WebSocket from 'ws'
import * as Y from 'yjs'

const [major, url, board, clientId] = process.argv.slice(2)
const { WebsocketProvider } = await import(`y-websocket-${major}`)

const doc = new Y.Doc()
if (clientId !== undefined) doc.clientID = Number(clientId)

// What came over the wire, in order: the types of messages, and whether they were binary.
const received = []
class NotingWebSocket extends WebSocket {
  constructor (...args) {
    super(...args)
    this.on('message', (data, isBinary) => received.push(isBinary ? [...new Uint8Array(data).subarray(0, 3)] : 'text'))
  }
}

let connections = 0
const provider = new WebsocketProvider(`${url}/ws`, board, doc, { WebSocketPolyfill: NotingWebSocket, disableBc: true })
provider.on('status', ({ status }) => { if (status === 'connected') connections += 1 })

// Lists of records, as docs/layout.md tells.
const digits = (count) => `[0-9a-z]{${count}}`
const number = `(?:${['gf', 'he', 'id', 'jc', 'kb', 'la'].map((letters, n) => `[${letters}]${digits(n + 1)}`).join('|')})`
const PLACE = new RegExp(`^(?:${number}${digits(6)}${number}[<>])*${number}${digits(6)}${number}=$`)
const isPlace = (place) => typeof place === 'string' && place.length <= 1024 && PLACE.test(place)
const placeOf = ([, record]) => record.get('$place')
const isItem = ([, record]) => record instanceof Y.Map && isPlace(record.get('$place'))
const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0)
const itemsOf = (field) => [...doc.getMap(field).entries()].filter(isItem)
  .sort((one, other) => compare(placeOf(one), placeOf(other)) || compare(one[0], other[0]))
function placeBetween (before, after) {
  const run = Array.from({ length: 6 }, () => Math.floor(Math.random() * 36).toString(36)).join('')
  if (!before && !after) return `g0${run}g0=`
  if (!before || after?.startsWith(before.slice(0, -1) + '>')) return `${after.slice(0, -1)}<g0${run}g0=`
  return `${before.slice(0, -1)}>g0${run}g0=`
}
const placeAt = (items, index) => placeBetween(items[index - 1] && placeOf(items[index - 1]), items[index] && placeOf(items[index]))
// Plain values, and texts as {text: '…'}.
const content = (fields) => Object.entries(fields).map(([name, value]) => [name, value?.text === undefined ? value : new Y.Text(value.text)])

const commands = {
  isSynced: () => provider.synced,
  connections: () => connections,
  received: () => received,
  clientId: () => doc.clientID,
  stateVector: () => [...Y.decodeStateVector(Y.encodeStateVector(doc)).keys()],
  text: (field) => doc.getText(field).toString(),
  map: (field) => doc.getMap(field).toJSON(),
  array: (field) => doc.getArray(field).toJSON(),
  insertText: (field, index, text) => { doc.getText(field).insert(index, text) },
  deleteText: (field, index, length) => { doc.getText(field).delete(index, length) },
  setKey: (field, key, value) => { doc.getMap(field).set(key, value) },
  deleteKey: (field, key) => { doc.getMap(field).delete(key) },
  insertItems: (field, index, items) => { doc.getArray(field).insert(index, items) },
  record: (field, key) => doc.getMap(field).get(key)?.toJSON(),
  setInRecord: (field, key, name, value) => { doc.getMap(field).get(key).set(name, value) },
  insertInRecord: (field, key, name, index, text) => { doc.getMap(field).get(key).get(name).insert(index, text) },
  setRecord: (field, key, fields) => { doc.getMap(field).set(key, new Y.Map(content(fields))) },
  titles: (field) => itemsOf(field).map(([, record]) => record.get('title')),
  itemIds: (field) => itemsOf(field).map(([id]) => id),
  insertItem: (field, index, id, fields) => {
    doc.getMap(field).set(id, new Y.Map([['$place', placeAt(itemsOf(field), index)], ...content(fields)]))
  },
  moveItem: (field, id, index) => {
    const others = itemsOf(field).filter(([other]) => other !== id)
    doc.getMap(field).get(id).set('$place', placeAt(others, index))
  },
  announce: (state) => { provider.awareness.setLocalState(state) },
  present: () => [...provider.awareness.getStates()].map(([client, state]) => ({ client, ...state }))
}

process.stdout.write('"ready"\n')
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [name, ...args] = JSON.parse(line)
  process.stdout.write(JSON.stringify(commands[name](...args) ?? null) + '\n')
}
provider.destroy()
process.exit(0)
