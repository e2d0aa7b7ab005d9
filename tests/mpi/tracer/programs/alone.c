/* One rank by itself does what its argument says. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Prints what it has computed. */
static void compute(void) {
    double start = cpu_seconds();
    while (cpu_seconds() < start + 0.05)
        ;
    usleep(50000);
    printf("%.9f\n", cpu_seconds() - start);
    MPI_Barrier(MPI_COMM_SELF);
}

/* More calls than are held in memory while a receive waits. */
static void wait_long(int calls) {
    int got = 0, sent = 0;
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &request);
    for (int i = 0; i < calls; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&sent, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void *barriers(void *nothing) {
    for (int i = 0; i < 10; i++)
        MPI_Barrier(MPI_COMM_SELF);
    return nothing;
}

/* Two threads call at once, and a child of the process ends. */
static void share(void) {
    pthread_t thread;
    int sent = 1, got;
    pthread_create(&thread, NULL, barriers, NULL);
    MPI_Allreduce(&sent, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    pthread_join(thread, NULL);
    if (fork() == 0)
        exit(0);
    wait(NULL);
}

/* A message that is longer than its receive. */
static void truncate_message(void) {
    int sent[4] = {0}, got[4];
    MPI_Request request;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Isend(sent, 4, MPI_INT, 0, 1, MPI_COMM_WORLD, &request);
    if (MPI_Recv(got, 2, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        puts("truncated");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int n = argc > 2 ? atoi(argv[2]) : 0, provided;
    MPI_Init_thread(&argc, &argv, strcmp(what, "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    if (strcmp(what, "threads") == 0)
        share();
    else if (strcmp(what, "truncate") == 0)
        truncate_message();
    else if (strcmp(what, "compute") == 0)
        compute();
    else if (strcmp(what, "wait") == 0)
        wait_long(n);
    else if (strcmp(what, "limited") == 0) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
        for (int i = 0; i < n; i++)
            MPI_Bcast(&n, i % 2, MPI_INT, 0, MPI_COMM_WORLD);
    } else if (strcmp(what, "exit") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        exit(5);
    }
    MPI_Finalize();
    puts("done");
    return 0;
}
