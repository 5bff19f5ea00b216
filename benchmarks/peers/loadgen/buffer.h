// Bytes that grow at the end and are taken from the front.
#ifndef BUFFER_H
#define BUFFER_H
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what) {
  fprintf(stderr, "loadgen: %s (%s)\n", what, strerror(errno));
  exit(2);
}

static void *checked(void *memory) {
  if (!memory) die("out of memory");
  return memory;
}

typedef struct {
  uint8_t *bytes;
  size_t taken, filled, room;
} buffer;

static void reserve(buffer *b, size_t more) {
  if (b->taken && b->taken == b->filled) b->taken = b->filled = 0;
  if (b->filled + more <= b->room) return;
  if (b->taken) {
    memmove(b->bytes, b->bytes + b->taken, b->filled - b->taken);
    b->filled -= b->taken;
    b->taken = 0;
  }
  if (b->filled + more <= b->room) return;
  if (!b->room) b->room = 4096;
  while (b->room < b->filled + more) b->room *= 2;
  b->bytes = checked(realloc(b->bytes, b->room));
}

static void append(buffer *b, const void *data, size_t size) {
  reserve(b, size);
  memcpy(b->bytes + b->filled, data, size);
  b->filled += size;
}
#endif
