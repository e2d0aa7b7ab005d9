/* Rows of a grid: each rank exchanges the edges with its neighbours, and all agree on the change. */
#include <mpi.h>
#include <stdlib.h>

enum { COLUMNS = 500, ROWS = 20, STEPS = 5 };

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    double *grid = calloc((ROWS + 2) * COLUMNS, sizeof(double)), change = 1, largest;
    for (int step = 0; step < STEPS; step++) {
        MPI_Request requests[4];
        int used = 0;
        if (above != MPI_PROC_NULL) {
            MPI_Irecv(grid, COLUMNS, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &requests[used++]);
            MPI_Isend(grid + COLUMNS, COLUMNS, MPI_DOUBLE, above, 2, MPI_COMM_WORLD, &requests[used++]);
        }
        if (below != MPI_PROC_NULL) {
            MPI_Irecv(grid + (ROWS + 1) * COLUMNS, COLUMNS, MPI_DOUBLE, below, 2, MPI_COMM_WORLD, &requests[used++]);
            MPI_Isend(grid + ROWS * COLUMNS, COLUMNS, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, &requests[used++]);
        }
        MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
        for (int i = COLUMNS; i < (ROWS + 1) * COLUMNS; i++)
            grid[i] = 0.25 * (grid[i - COLUMNS] + grid[i + COLUMNS] + grid[i - 1] + grid[i + 1]) + change;
        MPI_Allreduce(&change, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        change = largest / 2;
    }
    /* To the right, with what came from the left. */
    MPI_Sendrecv(grid, 7, MPI_DOUBLE, (rank + 1) % size, 3, grid + COLUMNS, 7, MPI_DOUBLE, (rank + size - 1) % size, 3,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    free(grid);
    return MPI_Finalize();
}
