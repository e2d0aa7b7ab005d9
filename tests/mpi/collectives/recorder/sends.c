// Writes what MPICH's device ch4:ucx sends: its calls of UCX, on the way to the library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// The beginning of ucp_request_param_t; the rest is not needed.
typedef struct {
  uint32_t mask;
  uint32_t flags;
  void *request;
  void *callback;
  uint64_t datatype;
} param_t;

enum { HAS_DATATYPE = 1 << 3, CLASS = 7 };

typedef void *send_t(void *, const void *, size_t, uint64_t, const param_t *);

static FILE *log_file;

void sends_open(int rank) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", getenv("SENDS_FOLDER"), rank);
  log_file = fopen(path, "w");
}

void sends_mark(const char *what, int number) { fprintf(log_file, "%s %d\n", what, number); }

void sends_close(void) {
  fclose(log_file);
  log_file = NULL;
}

// -1 bytes: the datatype is not contiguous, and its size is not known here.
static void *note(const char *name, void *ep, const void *data, size_t count, uint64_t tag, const param_t *param) {
  if (log_file) {
    uint64_t datatype = param->mask & HAS_DATATYPE ? param->datatype : 1 << 3;
    long bytes = datatype & CLASS ? -1 : (long)(count * (datatype >> 3));
    fprintf(log_file, "%s %p %ld\n", name, ep, bytes);
  }
  return ((send_t *)dlsym(RTLD_NEXT, name))(ep, data, count, tag, param);
}

void *ucp_tag_send_nbx(void *ep, const void *data, size_t count, uint64_t tag, const param_t *param) {
  return note("ucp_tag_send_nbx", ep, data, count, tag, param);
}

void *ucp_tag_send_sync_nbx(void *ep, const void *data, size_t count, uint64_t tag, const param_t *param) {
  return note("ucp_tag_send_sync_nbx", ep, data, count, tag, param);
}
