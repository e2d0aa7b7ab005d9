/* Programs of MPI that do little but communicate: programs NAME STEPS BYTES prints the seconds between two barriers. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

/* A grid of two rows; each rank exchanges BYTES with its neighbours. */
static void stencil(int bytes, char *out, char *in)
{
    int columns = (size + 1) / 2, row = rank / columns, column = rank % columns;
    int around[4] = {column > 0 ? rank - 1 : -1, column + 1 < columns && rank + 1 < size ? rank + 1 : -1,
                     row == 1 ? rank - columns : -1, row == 0 && rank + columns < size ? rank + columns : -1};
    MPI_Request requests[8];
    int begun = 0;
    for (int i = 0; i < 4; i++)
        if (around[i] >= 0)
            MPI_Irecv(in + (size_t)i * bytes, bytes, MPI_BYTE, around[i], 0, MPI_COMM_WORLD, &requests[begun++]);
    for (int i = 0; i < 4; i++)
        if (around[i] >= 0)
            MPI_Isend(out + (size_t)i * bytes, bytes, MPI_BYTE, around[i], 0, MPI_COMM_WORLD, &requests[begun++]);
    MPI_Waitall(begun, requests, MPI_STATUSES_IGNORE);
}

/* All give BYTES to all others. */
static void transposition(int bytes, char *out, char *in)
{
    MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

/* One gives all BYTES, and takes the sum of what they make of them. */
static void tree(int bytes, char *out, char *in)
{
    MPI_Bcast(out, bytes / 8, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Reduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}

/* All know the sum of all vectors of BYTES. */
static void sum(int bytes, char *out, char *in)
{
    MPI_Allreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* Each has a part of BYTES, and all know all parts. */
static void gathering(int bytes, char *out, char *in)
{
    MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

/* Each gives BYTES to the next and takes as many from the one before. */
static void ring(int bytes, char *out, char *in)
{
    MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + 1) % size, 0, in, bytes, MPI_BYTE, (rank + size - 1) % size, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* One deals out BYTES to each, and collects as many. */
static void dealing(int bytes, char *out, char *in)
{
    MPI_Scatter(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Gather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

/* Each gets the sums of its part of BYTES. */
static void parts(int bytes, char *out, char *in)
{
    MPI_Reduce_scatter_block(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*step)(int bytes, char *out, char *in);
} programs[] = {{"stencil", stencil}, {"transposition", transposition}, {"tree", tree}, {"sum", sum},
                {"gathering", gathering}, {"ring", ring}, {"dealing", dealing}, {"parts", parts}};

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    void (*step)(int, char *, char *) = NULL;
    for (size_t i = 0; count == 4 && i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(words[1], programs[i].name))
            step = programs[i].step;
    if (!step) {
        fprintf(stderr, "expected the name of a program, how many steps, and bytes\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int steps = atoi(words[2]), bytes = atoi(words[3]);
    size_t room = (size_t)bytes * (size > 4 ? size : 4);
    char *out = calloc(room, 1), *in = calloc(room, 1);
    /* Connections are made with the first message between two ranks. */
    MPI_Alltoall(out, 1, MPI_BYTE, in, 1, MPI_BYTE, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int i = 0; i < steps; i++)
        step(bytes, out, in);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("seconds %.6f\n", MPI_Wtime() - began);
    MPI_Finalize();
    return 0;
}
