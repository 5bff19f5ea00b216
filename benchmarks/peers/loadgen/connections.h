// The connections: websocket frames, the messages of y-websocket in them, and what has arrived where.
#ifndef CONNECTIONS_H
#define CONNECTIONS_H
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "buffer.h"
#include "yjs.h"

#define SECOND 1000000000ull
#define FIRST_CLIENT_ID 3000000000ull  // as in histories.py
enum { RECEIVED_BYTES = 65536 };
enum { BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };
enum { SYNC = 0, AUTH = 2, SYNC_REPLY = 4 };  // the last two are Hocuspocus'
typedef enum { NEW, CONNECTING, UPGRADING, SYNCING, READY, CLOSED } phase;

static struct {
  const char *path, *room, *updates;
  int port, rooms, clients, senders, count, hold, kill;
  double rate, drain, seconds, opening;
  bool named;  // each message begins with the room's name, as with Hocuspocus
} options = {.path = "/%s", .room = "room", .rooms = 1, .clients = 2, .senders = -1,
             .drain = 10, .seconds = 60, .opening = 30};

typedef struct {
  int fd, room, index;
  phase phase;
  buffer in, out, message;
  uint32_t sent, *expected;  // the next operation from each sender
  bool is_full;
} connection;

typedef struct {
  uint32_t count, *size;
  const uint8_t **bytes;
} stream;

static stream *streams;
static connection *connections;
static int connection_count, ready, closed, poller;
static uint64_t delivered, malformed, pairs_done, pairs_all, converged_at, last_arrival, now_received;
static uint64_t *due_times;  // by room, sender and update
static uint32_t *latencies;  // microseconds
static size_t latency_count, latency_room;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * SECOND + time.tv_nsec;
}

static uint64_t in_seconds(double seconds) { return now() + (uint64_t)(seconds * SECOND); }

static uint32_t next_u32(const uint8_t **at) {
  uint32_t value;
  memcpy(&value, *at, 4);
  *at += 4;
  return value;
}

static void load_updates(void) {
  int fd = open(options.updates, O_RDONLY);
  struct stat file;
  if (fd < 0 || fstat(fd, &file)) die("the file of updates");
  const uint8_t *at = mmap(NULL, file.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
  if (at == MAP_FAILED) die("mmap");
  uint32_t senders = next_u32(&at);
  if (senders < (uint32_t)options.senders) die("the file has too few senders");
  streams = checked(calloc(senders, sizeof *streams));
  for (uint32_t i = 0; i < senders; i++) {
    stream *s = &streams[i];
    s->count = next_u32(&at);
    if (s->count < (uint32_t)options.count) die("the file has too few updates");
    s->bytes = checked(malloc(s->count * sizeof *s->bytes));
    s->size = checked(malloc(s->count * sizeof *s->size));
    for (uint32_t k = 0; k < s->count; k++) {
      s->size[k] = next_u32(&at);
      s->bytes[k] = at;
      at += s->size[k];
    }
  }
}

static void watch_output(connection *c, bool is_full) {
  if (c->is_full == is_full) return;
  c->is_full = is_full;
  struct epoll_event event = {.events = EPOLLIN | (is_full ? EPOLLOUT : 0), .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

static void drop(connection *c) {
  if (c->phase == CLOSED) return;
  if (c->phase == READY) ready--;
  c->phase = CLOSED;
  closed++;
  close(c->fd);
}

static void flush(connection *c) {
  buffer *b = &c->out;
  while (b->taken < b->filled) {
    ssize_t written = send(c->fd, b->bytes + b->taken, b->filled - b->taken, MSG_NOSIGNAL);
    if (written < 0) {
      if (errno == EAGAIN) watch_output(c, true);
      else drop(c);
      return;
    }
    b->taken += written;
  }
  watch_output(c, false);
}

static uint32_t next_mask(void) {  // xorshift: it need not be secret here
  static uint32_t state = 2463534242u;
  state ^= state << 13;
  state ^= state >> 17;
  return state ^= state << 5;
}

static size_t put_varuint(uint8_t *at, uint64_t value) {
  size_t size = 0;
  for (; value > 127; value >>= 7) at[size++] = 0x80 | (value & 0x7f);
  at[size++] = value;
  return size;
}

static void put_room_name(char *name, size_t size, int room) {
  if (options.rooms == 1) snprintf(name, size, "%s", options.room);
  else snprintf(name, size, "%s-%d", options.room, room);
}

// One message is one frame, masked, and one write.
static void send_message(connection *c, int opcode, const uint8_t *head, size_t head_size, const uint8_t *body,
                         size_t body_size) {
  if (c->phase == CLOSED) return;
  uint8_t address[160];
  size_t address_size = 0;
  if (options.named && opcode == BINARY) {
    char name[128];
    put_room_name(name, sizeof name, c->room);
    address_size = put_varuint(address, strlen(name));
    memcpy(address + address_size, name, strlen(name));
    address_size += strlen(name);
  }
  size_t size = address_size + head_size + body_size, at = 2;
  reserve(&c->out, size + 14);
  uint8_t *frame = c->out.bytes + c->out.filled;
  frame[0] = 0x80 | opcode;
  if (size < 126) {
    frame[1] = 0x80 | size;
  } else {
    bool is_long = size >= 65536;
    frame[1] = 0x80 | (is_long ? 127 : 126);
    for (int shift = is_long ? 56 : 8; shift >= 0; shift -= 8) frame[at++] = (uint64_t)size >> shift;
  }
  uint32_t random = next_mask();
  uint8_t mask[4];
  memcpy(mask, &random, 4);
  memcpy(frame + at, mask, 4);
  uint8_t *content = frame + at + 4;
  memcpy(content, address, address_size);
  if (head_size) memcpy(content + address_size, head, head_size);
  if (body_size) memcpy(content + address_size + head_size, body, body_size);
  for (size_t i = 0; i < size; i++) content[i] ^= mask[i & 3];
  c->out.filled += at + 4 + size;
  if (!c->is_full) flush(c);
}

#define SEND(c, ...) send_message(c, BINARY, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), NULL, 0)

static void send_step1(connection *c) { SEND(c, SYNC, 0, 1, 0); }      // I hold nothing
static void send_empty_step2(connection *c) { SEND(c, SYNC, 1, 2, 0, 0); }  // I have nothing for you

static uint64_t *due_time(connection *c, int sender, uint32_t update) {
  return &due_times[((size_t)c->room * options.senders + sender) * options.count + update];
}

static void send_update(connection *c, uint64_t due) {
  uint32_t k = c->sent++;
  stream *s = &streams[c->index];
  uint8_t head[16] = {SYNC, 2};
  *due_time(c, c->index, k) = due;
  send_message(c, BINARY, head, 2 + put_varuint(head + 2, s->size[k]), s->bytes[k], s->size[k]);
}

static void take_range(void *context, uint64_t client, uint64_t clock, uint64_t length) {
  connection *c = context;
  uint64_t sender = client - FIRST_CLIENT_ID, end = clock + length;
  if (sender >= (uint64_t)options.senders || !c->expected) return;
  uint64_t expected = c->expected[sender];
  if (end > (uint64_t)options.count) end = options.count;
  if (clock > expected || end <= expected) return;  // what comes after a gap does not count until the gap is filled
  c->expected[sender] = end;
  if ((int)sender == c->index) return;  // its own, come back
  delivered += end - expected;
  last_arrival = now_received;
  for (uint64_t k = expected; k < end && latency_count < latency_room; k++)
    latencies[latency_count++] = (now_received - *due_time(c, sender, k)) / 1000;
  if (end < (uint64_t)options.count || ++pairs_done < pairs_all) return;
  converged_at = now_received;
  if (options.kill > 0) kill(options.kill, SIGKILL);
}

static void take_message(connection *c, const uint8_t *bytes, size_t size) {
  reader r = {bytes, bytes + size, false};
  if (options.named) skip_string(&r);
  uint64_t kind = read_varuint(&r);
  if (options.named && kind == AUTH) {
    if (read_varuint(&r) == 2) send_step1(c);
    return;
  }
  if (kind != SYNC && !(options.named && kind == SYNC_REPLY)) return;
  uint64_t step = read_varuint(&r);
  if (step == 0) {
    send_empty_step2(c);
    return;
  }
  uint64_t length = read_varuint(&r);
  if (r.bad || (uint64_t)(r.end - r.at) < length || !walk_update(r.at, length, take_range, c)) {
    malformed++;
    return;
  }
  if (step == 1 && c->phase == SYNCING) {
    c->phase = READY;
    ready++;
  }
}

static void take_frame(connection *c, int first, const uint8_t *content, size_t size) {
  int opcode = first & 15;
  bool is_last = first & 0x80;
  if (opcode == PING) {
    send_message(c, PONG, content, size, NULL, 0);
  } else if (opcode == CLOSE) {
    drop(c);
  } else if (opcode == BINARY && is_last) {
    take_message(c, content, size);
  } else if (opcode <= BINARY) {
    if (opcode) c->message.taken = c->message.filled = 0;
    append(&c->message, content, size);
    if (is_last) take_message(c, c->message.bytes, c->message.filled);
  }
}

static void take_frames(connection *c) {
  buffer *b = &c->in;
  while (c->phase != CLOSED) {
    const uint8_t *at = b->bytes + b->taken;
    size_t have = b->filled - b->taken, head = 2;
    if (have < 2) break;
    uint64_t size = at[1] & 127;
    if (size >= 126) {
      head = size == 126 ? 4 : 10;
      if (have < head) break;
      size = 0;
      for (size_t i = 2; i < head; i++) size = size << 8 | at[i];
    }
    if (have < head + size) break;
    take_frame(c, at[0], at + head, size);
    b->taken += head + size;
  }
  if (b->taken == b->filled) b->taken = b->filled = 0;
}

// True when the server agreed to speak websocket, and the first message was sent.
static bool take_upgrade(connection *c) {
  buffer *b = &c->in;
  uint8_t *end = memmem(b->bytes, b->filled, "\r\n\r\n", 4);
  if (!end) return false;
  if (memcmp(b->bytes, "HTTP/1.1 101", 12)) {
    drop(c);
    return false;
  }
  b->taken = end + 4 - b->bytes;
  c->phase = SYNCING;
  if (options.named) SEND(c, AUTH, 0, 0);  // an empty token
  else send_step1(c);
  return true;
}

static void receive(connection *c) {
  for (int i = 0; i < 4 && c->phase != CLOSED; i++) {
    reserve(&c->in, RECEIVED_BYTES);
    ssize_t size = recv(c->fd, c->in.bytes + c->in.filled, c->in.room - c->in.filled, 0);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      drop(c);
      return;
    }
    now_received = now();
    c->in.filled += size;
    if (c->phase == UPGRADING && !take_upgrade(c)) continue;
    take_frames(c);
    if (size < RECEIVED_BYTES / 2) return;
  }
}

static void start(connection *c) {
  int yes = 1;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (c->fd < 0) die("socket");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(options.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(c->fd, (void *)&address, sizeof address) && errno != EINPROGRESS) die("connect");
  c->phase = CONNECTING;
  c->is_full = true;
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
}

static void upgrade(connection *c) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error) {
    drop(c);
    return;
  }
  char name[128], request[900];
  put_room_name(name, sizeof name, c->room);
  const char *place = strstr(options.path, "%s");
  int before = place ? (int)(place - options.path) : (int)strlen(options.path);
  int length = snprintf(request, sizeof request,
                        "GET %.*s%s%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
                        before, options.path, place ? name : "", place ? place + 2 : "", options.port);
  c->phase = UPGRADING;
  append(&c->out, request, length);
  flush(c);
}
#endif
