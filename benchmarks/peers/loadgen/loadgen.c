// Drives one Yjs server over many websockets from one thread, and prints one line of JSON.
//
// It holds no documents: the updates are made beforehand (histories.py), and of what arrives only the struct headers
// are read. For each receiver and sender it keeps the next operation that is expected, so that a server may merge
// updates or send them one by one: updates that arrived are counted, not frames.
#define _GNU_SOURCE
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "connections.h"

enum { EVENTS = 512, OPENING_MAX = 64, BURST = 4, PACED_BURST = 64, LATENCIES_MAX = 20000000 };

static void turn(uint64_t wait_ns) {
  struct epoll_event events[EVENTS];
  struct timespec wait = {wait_ns / SECOND, wait_ns % SECOND};
  int count = syscall(SYS_epoll_pwait2, poller, events, EVENTS, &wait, NULL, 0);
  for (int i = 0; i < count; i++) {
    connection *c = events[i].data.ptr;
    uint32_t what = events[i].events;
    if (c->phase == CONNECTING && what & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
      upgrade(c);
      continue;
    }
    if (c->phase != CLOSED && what & EPOLLOUT) flush(c);
    if (c->phase != CLOSED && what & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(c);
  }
}

static void turn_until(uint64_t end) {
  while (now() < end) turn(SECOND / 50);
}

static double cpu_seconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void open_all(void) {
  uint64_t end = in_seconds(options.opening);
  for (int started = 0; ready + closed < connection_count && now() < end; turn(SECOND / 50))
    while (started < connection_count && started - ready - closed < OPENING_MAX) start(&connections[started++]);
}

// At a fixed rate, whether the server keeps up or not; returns how many were sent.
static uint64_t send_paced(connection **senders, uint64_t sender_count, uint64_t all, uint64_t stop) {
  uint64_t begin = now(), sent = 0;
  double step = SECOND / (options.rate * sender_count);
  while (sent < all && now() < stop) {
    uint64_t due = begin + (uint64_t)(sent * step);
    for (int burst = 0; sent < all && due <= now() && burst < PACED_BURST; burst++) {
      send_update(senders[sent % sender_count], due);
      due = begin + (uint64_t)(++sent * step);
    }
    uint64_t at = now();
    turn(sent < all && due > at ? due - at : 0);
  }
  return sent;
}

// As fast as the sockets take it.
static uint64_t send_all(connection **senders, uint64_t sender_count, uint64_t all, uint64_t stop) {
  uint64_t sent = 0;
  int closed_before = closed;
  while (sent < all && now() < stop && closed == closed_before) {
    uint64_t before = sent;
    for (uint64_t i = 0; i < sender_count; i++) {
      connection *c = senders[i];
      for (int k = 0; k < BURST && c->phase == READY && !c->is_full && c->sent < (uint32_t)options.count; k++, sent++)
        send_update(c, now());
    }
    turn(sent > before ? 0 : SECOND / 100);
  }
  return sent;
}

static int by_size(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static double latency_ms(double share) {
  return latency_count ? latencies[(size_t)(share * (latency_count - 1))] / 1000.0 : -1;
}

static void drive(int ready_before) {
  uint64_t sender_count = (uint64_t)options.rooms * options.senders, all = sender_count * options.count, sent = 0;
  uint64_t begin = now(), stop = in_seconds(options.seconds), sent_all = begin;
  double cpu = cpu_seconds();
  if (ready_before == connection_count && all) {
    connection **senders = checked(malloc(sender_count * sizeof *senders));
    for (uint64_t i = 0; i < sender_count; i++)
      senders[i] = &connections[i / options.senders * options.clients + i % options.senders];
    sent = (options.rate > 0 ? send_paced : send_all)(senders, sender_count, all, stop);
    sent_all = now();
    uint64_t end = in_seconds(options.drain);
    while (!converged_at && pairs_all && closed < connection_count && now() < end && now() < stop) turn(SECOND / 100);
  }
  uint64_t end = converged_at ? converged_at : last_arrival > begin ? last_arrival : now();
  qsort(latencies, latency_count, sizeof *latencies, by_size);
  printf("{\"connected\":%d,\"wanted\":%d,\"sent\":%llu,\"send_s\":%.4f,\"converged\":%s,\"elapsed_s\":%.4f,"
         "\"drain_s\":%.4f,\"delivered\":%llu,\"malformed\":%llu,\"closed\":%d,\"generator_cpu_s\":%.4f,"
         "\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f}\n",
         ready_before, connection_count, (unsigned long long)sent, (sent_all - begin) / 1e9,
         converged_at ? "true" : "false", (end - begin) / 1e9, converged_at > sent_all ? (converged_at - sent_all) / 1e9 : 0,
         (unsigned long long)delivered, (unsigned long long)malformed, closed, cpu_seconds() - cpu, latency_ms(.5),
         latency_ms(.99), latency_ms(1));
  fflush(stdout);
}

// Keeps the connections until the input ends.
static void hold(void) {
  fcntl(0, F_SETFL, O_NONBLOCK);
  char byte;
  for (uint64_t end = in_seconds(options.hold); now() < end; turn(SECOND / 20))
    if (read(0, &byte, 1) >= 0) break;
}

static void leave(void) {
  for (int i = 0; i < connection_count; i++)
    if (connections[i].phase == READY && !options.kill)
      send_message(&connections[i], CLOSE, (const uint8_t[]){0x03, 0xe8}, 2, NULL, 0);
  for (uint64_t end = in_seconds(1); now() < end && closed < connection_count;) turn(SECOND / 100);
}

static void read_options(int count, char **words) {
  for (int i = 1; i < count; i++) {
    const char *name = words[i], *value = i + 1 < count ? words[i + 1] : "";
    if (!strcmp(name, "--named")) {
      options.named = true;
      continue;
    }
    i++;
    if (!strcmp(name, "--port")) options.port = atoi(value);
    else if (!strcmp(name, "--path")) options.path = value;
    else if (!strcmp(name, "--room")) options.room = value;
    else if (!strcmp(name, "--updates")) options.updates = value;
    else if (!strcmp(name, "--rooms")) options.rooms = atoi(value);
    else if (!strcmp(name, "--clients")) options.clients = atoi(value);
    else if (!strcmp(name, "--senders")) options.senders = atoi(value);
    else if (!strcmp(name, "--count")) options.count = atoi(value);
    else if (!strcmp(name, "--rate")) options.rate = atof(value);  // updates a second of each sender
    else if (!strcmp(name, "--drain")) options.drain = atof(value);
    else if (!strcmp(name, "--seconds")) options.seconds = atof(value);
    else if (!strcmp(name, "--opening")) options.opening = atof(value);
    else if (!strcmp(name, "--hold")) options.hold = atoi(value);
    else if (!strcmp(name, "--kill")) options.kill = atoi(value);  // this process, once all have everything
    else die(name);
  }
  if (options.senders < 0 || options.senders > options.clients) options.senders = options.clients;
}

int main(int count, char **words) {
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_TIMERSLACK, 1000);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  read_options(count, words);
  if (options.senders && options.count) load_updates();
  size_t all = (size_t)options.rooms * options.senders * options.count;
  due_times = checked(calloc(all + 1, sizeof *due_times));
  latency_room = all * (options.clients - 1);
  if (latency_room > LATENCIES_MAX) latency_room = LATENCIES_MAX;
  latencies = checked(malloc((latency_room + 1) * sizeof *latencies));
  pairs_all = (uint64_t)options.rooms * options.senders * (options.clients - 1);
  connection_count = options.rooms * options.clients;
  connections = checked(calloc(connection_count, sizeof *connections));
  for (int i = 0; i < connection_count; i++) {
    connections[i].room = i / options.clients;
    connections[i].index = i % options.clients;
    connections[i].expected = checked(calloc(options.senders + 1, sizeof(uint32_t)));
  }
  if ((poller = epoll_create1(0)) < 0) die("epoll");
  open_all();
  int ready_before = ready;
  turn_until(in_seconds(0.2));  // presence, and what else a new connection brings about
  drive(ready_before);
  if (options.hold) hold();
  leave();
  return 0;
}
