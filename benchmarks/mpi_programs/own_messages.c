/* Prints the nanoseconds of a call: of a rank that exchanges messages with itself, and computes nothing between. They
 * are of CPU time, as it never sleeps and the machine may have other work. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100000;
    char sent = 0, got = 0;
    MPI_Init(&argc, &argv);
    MPI_Request requests[2];
    double start = 0;
    for (int i = -rounds / 10; i < rounds; i++) {
        if (i == 0)
            start = now();
        MPI_Irecv(&got, 1, MPI_CHAR, MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &requests[0]);
        MPI_Isend(&sent, 1, MPI_CHAR, 0, 0, MPI_COMM_SELF, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    printf("%.1f\n", (now() - start) / rounds / 3);
    return MPI_Finalize();
}
