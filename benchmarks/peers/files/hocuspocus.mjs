// Hocuspocus with its SQLite extension: node hocuspocus.mjs PORT FOLDER
import { SQLite } from '@hocuspocus/extension-sqlite'
import { Server } from '@hocuspocus/server'

const [port, folder] = process.argv.slice(2)
new Server({
  address: '127.0.0.1',
  port: Number(port),
  quiet: true,
  extensions: [new SQLite({ database: `${folder}/boards.sqlite` })]
}).listen()
