/* A matrix on a square of ranks is transposed along rows, then along columns, as a Fourier transform does. */
#include <mpi.h>
#include <stdlib.h>

enum { BLOCK = 100, STEPS = 3 };

int main(int argc, char **argv) {
    int rank, size, width = 1, length = BLOCK;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while ((width + 1) * (width + 1) <= size)
        width++;
    MPI_Comm row, column;
    MPI_Comm_split(MPI_COMM_WORLD, rank / width, rank, &row);
    MPI_Comm_split(MPI_COMM_WORLD, rank % width, rank, &column);
    int along, down;
    MPI_Comm_size(row, &along);
    MPI_Comm_size(column, &down);
    size_t elements = (size_t)BLOCK * (size_t)size;
    float *sent = calloc(elements, sizeof(float)), *got = calloc(elements, sizeof(float));
    MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int step = 0; step < STEPS; step++) {
        MPI_Alltoall(sent, length, MPI_FLOAT, got, length, MPI_FLOAT, row);
        MPI_Alltoall(got, length, MPI_FLOAT, sent, length, MPI_FLOAT, column);
    }
    int *counts = malloc((size_t)size * sizeof(int)), *places = malloc((size_t)size * sizeof(int));
    for (int i = 0, place = 0; i < size; place += counts[i++]) {
        counts[i] = 1 + i % 3;
        places[i] = place;
    }
    MPI_Gatherv(sent, counts[rank], MPI_FLOAT, got, counts, places, MPI_FLOAT, 0, MPI_COMM_WORLD);
    MPI_Allgatherv(sent, counts[rank], MPI_FLOAT, got, counts, places, MPI_FLOAT, MPI_COMM_WORLD);
    MPI_Reduce_scatter(sent, got, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(sent, got, 10, MPI_FLOAT, MPI_SUM, down - 1, column);
    MPI_Barrier(row);
    MPI_Comm_free(&row);
    MPI_Comm_free(&column);
    free(sent);
    free(got);
    free(counts);
    free(places);
    return MPI_Finalize();
}
