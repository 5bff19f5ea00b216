// Which operations are in a Yjs v1 update, read from its structs without applying it.
#ifndef YJS_H
#define YJS_H
#include <stdbool.h>
#include <stdint.h>

enum { MAX_DEPTH = 64 };  // of nested JSON-like values

typedef struct {
  const uint8_t *at, *end;
  bool bad;
} reader;

// `client` wrote the operations numbered `clock` to `clock + length - 1`.
typedef void (*on_range)(void *context, uint64_t client, uint64_t clock, uint64_t length);

static uint64_t read_varuint(reader *r) {
  uint64_t value = 0;
  for (int shift = 0; r->at < r->end; shift += 7) {
    uint8_t byte = *r->at++;
    if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
  r->bad = true;
  return 0;
}

static void skip(reader *r, uint64_t bytes) {
  if ((uint64_t)(r->end - r->at) < bytes) {
    r->bad = true;
    r->at = r->end;
    return;
  }
  r->at += bytes;
}

static void skip_string(reader *r) { skip(r, read_varuint(r)); }

static void skip_id(reader *r) {
  read_varuint(r);
  read_varuint(r);
}

// A string counts as many operations as it has UTF-16 units.
static uint64_t read_utf16_length(reader *r) {
  uint64_t bytes = read_varuint(r), units = 0;
  if ((uint64_t)(r->end - r->at) < bytes) {
    r->bad = true;
    return 0;
  }
  for (uint64_t i = 0; i < bytes; i++) {
    uint8_t byte = r->at[i];
    if ((byte & 0xc0) != 0x80) units += byte >= 0xf0 ? 2 : 1;
  }
  r->at += bytes;
  return units;
}

static void skip_value(reader *r, int depth) {
  if (r->at >= r->end || depth > MAX_DEPTH) {
    r->bad = true;
    return;
  }
  uint64_t count;
  switch (*r->at++) {
    case 127: case 126: case 121: case 120:  // undefined, null, false, true
      break;
    case 125:  // integer
      while (r->at < r->end && (*r->at & 0x80)) r->at++;
      skip(r, 1);
      break;
    case 124:  // float32
      skip(r, 4);
      break;
    case 123: case 122:  // float64, bigint
      skip(r, 8);
      break;
    case 119: case 116:  // string, bytes
      skip_string(r);
      break;
    case 118:  // object
      for (count = read_varuint(r); count && !r->bad; count--) {
        skip_string(r);
        skip_value(r, depth + 1);
      }
      break;
    case 117:  // array
      for (count = read_varuint(r); count && !r->bad; count--) skip_value(r, depth + 1);
      break;
    default:
      r->bad = true;
  }
}

// The number of operations in the content of an item.
static uint64_t read_content(reader *r, int kind) {
  uint64_t length = 1;
  switch (kind) {
    case 1:  // deleted
      return read_varuint(r);
    case 2:  // JSON
      length = read_varuint(r);
      for (uint64_t i = 0; i < length && !r->bad; i++) skip_string(r);
      return length;
    case 4:  // string
      return read_utf16_length(r);
    case 3: case 5:  // binary, embed
      skip_string(r);
      return 1;
    case 6:  // format
      skip_string(r);
      skip_string(r);
      return 1;
    case 7: {  // type
      uint64_t type = read_varuint(r);
      if (type == 3 || type == 5) skip_string(r);
      return 1;
    }
    case 8:  // any
      length = read_varuint(r);
      for (uint64_t i = 0; i < length && !r->bad; i++) skip_value(r, 0);
      return length;
    case 9:  // document
      skip_string(r);
      skip_value(r, 0);
      return 1;
    default:
      r->bad = true;
      return 0;
  }
}

static void skip_place(reader *r, int info) {
  if (info & 0x80) skip_id(r);  // left origin
  if (info & 0x40) skip_id(r);  // right origin
  if (info & 0xc0) return;
  if (read_varuint(r) == 1) skip_string(r);  // in a root
  else skip_id(r);
  if (info & 0x20) skip_string(r);  // under a key
}

// Calls back for each range that the update holds; gaps are left out. False when the update is malformed.
static bool walk_update(const uint8_t *bytes, size_t size, on_range call, void *context) {
  reader r = {bytes, bytes + size, false};
  for (uint64_t clients = read_varuint(&r); clients && !r.bad; clients--) {
    uint64_t structs = read_varuint(&r), client = read_varuint(&r), clock = read_varuint(&r), start = clock;
    for (; structs && !r.bad; structs--) {
      if (r.at >= r.end) return false;
      int info = *r.at++, kind = info & 31;
      if (kind == 10) {  // a gap
        if (clock > start) call(context, client, start, clock - start);
        clock += read_varuint(&r);
        start = clock;
      } else if (kind == 0) {  // garbage that was collected
        clock += read_varuint(&r);
      } else {
        skip_place(&r, info);
        clock += read_content(&r, kind);
      }
    }
    if (!r.bad && clock > start) call(context, client, start, clock - start);
  }
  return !r.bad;
}
#endif
