// yjs-server with LevelDB behind its `loadDoc` and `onUpdate`: node yjs_server.mjs PORT FOLDER
import { WebSocketServer } from 'ws'
import { LeveldbPersistence } from 'y-leveldb'
import * as Y from 'yjs'
import { createYjsServer } from 'yjs-server'

const [port, folder] = process.argv.slice(2)
const level = new LeveldbPersistence(folder)
const server = createYjsServer({
  createDoc: () => new Y.Doc(),
  docStorage: {
    loadDoc: async (name, doc) => Y.applyUpdate(doc, Y.encodeStateAsUpdate(await level.getYDoc(name))),
    onUpdate: (name, update) => level.storeUpdate(name, update)
  }
})
new WebSocketServer({ host: '127.0.0.1', port: Number(port) })
  .on('connection', (socket, request) => server.handleConnection(socket, request))
