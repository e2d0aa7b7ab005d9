/* Rank 0 gives work to whoever is done, until there is no more: it takes results from any. */
#include <mpi.h>

enum { TASKS = 20, INPUT = 300, RESULT = 40, WORK = 1, STOP = 2 };

static void lead(int size) {
    double input[INPUT] = {0}, result[RESULT];
    int given = 0, idle = 0;
    for (int worker = 1; worker < size; worker++, given++)
        MPI_Send(input, INPUT, MPI_DOUBLE, worker, WORK, MPI_COMM_WORLD);
    while (idle < size - 1) {
        MPI_Status status;
        MPI_Recv(result, RESULT, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        int has_more = given < TASKS;
        MPI_Send(input, has_more ? INPUT : 1, MPI_DOUBLE, status.MPI_SOURCE, has_more ? WORK : STOP, MPI_COMM_WORLD);
        given += has_more;
        idle += !has_more;
    }
}

static void work(void) {
    double input[INPUT], result[RESULT] = {0};
    MPI_Status status;
    for (;;) {
        MPI_Request request;
        int is_there = 0;
        MPI_Irecv(input, INPUT, MPI_DOUBLE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
        while (!is_there)
            MPI_Test(&request, &is_there, &status);
        if (status.MPI_TAG == STOP)
            return;
        for (int i = 0; i < INPUT; i++)
            result[i % RESULT] += input[i];
        MPI_Send(result, RESULT, MPI_DOUBLE, 0, WORK, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        lead(size);
    else
        work();
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
