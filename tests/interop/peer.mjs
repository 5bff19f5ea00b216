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
  // A whole record: plain values, and texts as {text: '…'}.
  setRecord: (field, key, content) => {
    const made = Object.entries(content).map(([name, value]) => [name, value?.text === undefined ? value : new Y.Text(value.text)])
    doc.getMap(field).set(key, new Y.Map(made))
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
