// Makes the collective calls that a file lists, one a line:
// name root commutative element variable value sizes...   (bytes; variable "-" sets none)
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sends_open(int rank);
void sends_mark(const char *what, int number);
void sends_close(void);

enum { MAX_SIZES = 4096, BUFFER = 1 << 24 };

static void set_variable(const char *name, int value) {
  int provided, index, count;
  MPI_T_cvar_handle handle;
  if (!strcmp(name, "-")) return;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_T_cvar_handle_alloc(index, NULL, &handle, &count);
  if (MPI_T_cvar_write(handle, &value) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_T_cvar_handle_free(&handle);
}

static void nothing(void *in, void *out, int *count, MPI_Datatype *type) {}

// One byte to each rank, so that the log tells which endpoint is whose.
static void meet(int rank, int size) {
  for (int peer = 0; peer < size; peer++) {
    char mine = 0, theirs;
    MPI_Request request;
    if (peer == rank) continue;
    sends_mark("peer", peer);
    MPI_Isend(&mine, 1, MPI_CHAR, peer, 0, MPI_COMM_WORLD, &request);
    MPI_Recv(&theirs, 1, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

static void make(const char *name, int root, MPI_Op op, MPI_Datatype type, const int *n, int rank, int size) {
  static char in[BUFFER], out[BUFFER];
  static int at[MAX_SIZES], sent[MAX_SIZES], sent_at[MAX_SIZES], got[MAX_SIZES], got_at[MAX_SIZES];
  MPI_Comm all = MPI_COMM_WORLD;
  for (int i = 1; i < size; i++) at[i] = at[i - 1] + n[i - 1];
  if (!strcmp(name, "allgather")) MPI_Allgather(in, *n, type, out, *n, type, all);
  if (!strcmp(name, "allgatherv")) MPI_Allgatherv(in, n[rank], type, out, n, at, type, all);
  if (!strcmp(name, "allreduce")) MPI_Allreduce(in, out, *n, type, op, all);
  if (!strcmp(name, "alltoall")) MPI_Alltoall(in, *n, type, out, *n, type, all);
  if (!strcmp(name, "barrier")) MPI_Barrier(all);
  if (!strcmp(name, "bcast")) MPI_Bcast(in, *n, type, root, all);
  if (!strcmp(name, "exscan")) MPI_Exscan(in, out, *n, type, op, all);
  if (!strcmp(name, "gather")) MPI_Gather(in, *n, type, out, *n, type, root, all);
  if (!strcmp(name, "gatherv")) MPI_Gatherv(in, n[rank], type, out, n, at, type, root, all);
  if (!strcmp(name, "reduce")) MPI_Reduce(in, out, *n, type, op, root, all);
  if (!strcmp(name, "reduce_scatter")) MPI_Reduce_scatter(in, out, n, type, op, all);
  if (!strcmp(name, "reduce_scatter_block")) MPI_Reduce_scatter_block(in, out, *n, type, op, all);
  if (!strcmp(name, "scan")) MPI_Scan(in, out, *n, type, op, all);
  if (!strcmp(name, "scatter")) MPI_Scatter(in, *n, type, out, *n, type, root, all);
  if (!strcmp(name, "scatterv")) MPI_Scatterv(in, n, at, type, out, n[rank], type, root, all);
  if (strcmp(name, "alltoallv")) return;
  for (int i = 0; i < size; i++) {
    sent[i] = n[rank * size + i];
    got[i] = n[i * size + rank];
    sent_at[i] = i ? sent_at[i - 1] + sent[i - 1] : 0;
    got_at[i] = i ? got_at[i - 1] + got[i - 1] : 0;
  }
  MPI_Alltoallv(in, sent, sent_at, type, out, got, got_at, type, all);
}

int main(int argc, char **argv) {
  int rank, size, number = 0;
  static char line[1 << 16];
  static int n[MAX_SIZES];
  MPI_Op other;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Op_create(nothing, 0, &other);
  sends_open(rank);
  meet(rank, size);
  FILE *calls = fopen(argv[1], "r");
  while (fgets(line, sizeof line, calls)) {
    char name[32], variable[80];
    int root, commutative, element, value, read, count = 0;
    sscanf(line, "%31s %d %d %d %79s %d%n", name, &root, &commutative, &element, variable, &value, &read);
    for (char *at = line + read, *end;; at = end) {
      int bytes = strtol(at, &end, 10);
      if (end == at) break;
      n[count++] = bytes / element;
    }
    set_variable(variable, value);
    sends_mark("call", number);
    make(name, root, commutative ? MPI_SUM : other, element == 8 ? MPI_DOUBLE : MPI_CHAR, n, rank, size);
    sends_mark("end", number++);
    set_variable(variable, 0);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  sends_close();
  MPI_Finalize();
  return 0;
}
