/* Chains of processes: each forks the next and ends at once, before others can use its number.
 * All hold the lock of the file "held"; "up" is printed when the chains have some length. A
 * chain that nobody ends creates the file "survived" after some seconds.
 */
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { CHAINS = 100, LENGTH = 30, SECONDS = 8 };

static void run_chain(int number) {
    time_t end = time(0) + SECONDS;
    setsid();
    for (int link = 0; time(0) < end; link++) {
        if (fork() > 0)
            _exit(0);
        if (number == 0 && link == LENGTH)
            (void)!write(1, "up\n", 3);
    }
    close(open("survived", O_CREAT | O_WRONLY, 0600));
    _exit(0);
}

int main(void) {
    int start[2];
    char byte;
    flock(open("held", O_CREAT | O_WRONLY, 0600), LOCK_SH);
    if (pipe(start) != 0)
        return 1;
    for (int number = 0; number < CHAINS; number++) {
        if (fork() == 0) {
            close(start[1]);
            (void)!read(start[0], &byte, 1);
            run_chain(number);
        }
    }
    close(start[1]);
    pause();
    return 0;
}
