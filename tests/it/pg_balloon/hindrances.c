/*
 * Preloaded into a server, which it hinders as long as files in DIRECTORY say so:
 *	no-writes		every write of a table's file fails, or of files whose path holds what this one holds
 *	slow-reads		every read of a file whose path holds what this one holds takes five milliseconds longer …
 *	slow-writes		… and every write
 *	no-returning	the operating system takes no memory back
 *	stuck-returning	… or takes it only once the file is gone
 *	no-smaps		the process may not look at its own mappings
 *	fast-clock		whenever it is looked at, the clock has gone on by a second
 *	pressure, meminfo, vmstat	the process reads this file where it asks for that of the machine
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int named(int fd, const char *part)
{
    char link[64], path[512];
    ssize_t length;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, part) != NULL;
}

static int fails(int fd)
{
    char part[128];
    ssize_t length;
    int flag = open(DIRECTORY "/no-writes", O_RDONLY);
    if (flag < 0) return 0;
    length = read(flag, part, sizeof(part) - 1);
    close(flag);
    part[length > 0 ? length : 0] = 0;
    if (!named(fd, length > 0 ? part : "/base/")) return 0;
    errno = EIO;
    return 1;
}

static void linger(int fd, const char *file)
{
    char part[128];
    ssize_t length;
    int flag = open(file, O_RDONLY);
    if (flag < 0) return;
    length = read(flag, part, sizeof(part) - 1);
    close(flag);
    if (length <= 0) return;
    part[length] = 0;
    if (named(fd, part)) usleep(5000);
}

#define WRAP(name, type, size, before) \
    ssize_t name(int fd, type what, size n, off_t at) \
    { \
        ssize_t (*real)(int, type, size, off_t) = dlsym(RTLD_NEXT, #name); \
        before; \
        return real(fd, what, n, at); \
    }
#define WRITES(name, type, size) WRAP(name, type, size, if (fails(fd)) return -1; linger(fd, DIRECTORY "/slow-writes"))
#define READS(name, type, size) WRAP(name, type, size, linger(fd, DIRECTORY "/slow-reads"))
WRITES(pwrite, const void *, size_t)
WRITES(pwrite64, const void *, size_t)
WRITES(pwritev, const struct iovec *, int)
WRITES(pwritev64, const struct iovec *, int)
READS(pread, void *, size_t)
READS(pread64, void *, size_t)
READS(preadv, const struct iovec *, int)
READS(preadv64, const struct iovec *, int)

int madvise(void *from, size_t length, int advice)
{
    int (*real)(void *, size_t, int) = dlsym(RTLD_NEXT, "madvise");
    while (advice == MADV_REMOVE && access(DIRECTORY "/stuck-returning", F_OK) == 0) usleep(5000);
    if (advice != MADV_REMOVE || access(DIRECTORY "/no-returning", F_OK) != 0) return real(from, length, advice);
    errno = EPERM;
    return -1;
}

#define OPENS(name) \
    FILE *name(const char *path, const char *mode) \
    { \
        FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, #name); \
        if (strcmp(path, "/proc/self/smaps") != 0 || access(DIRECTORY "/no-smaps", F_OK) != 0) return real(path, mode); \
        errno = EACCES; \
        return NULL; \
    }
OPENS(fopen)
OPENS(fopen64)

static const char *instead(const char *path)
{
    static const char *const files[][2] = {
        {"/proc/pressure/memory", DIRECTORY "/pressure"}, {"/proc/meminfo", DIRECTORY "/meminfo"}, {"/proc/vmstat", DIRECTORY "/vmstat"}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (strcmp(path, files[i][0]) == 0 && access(files[i][1], R_OK) == 0) return files[i][1];
    return path;
}

#define OPENS_FILE(name) \
    int name(const char *path, int flags, ...) \
    { \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name); \
        va_list rest; \
        mode_t mode; \
        va_start(rest, flags); \
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return real(instead(path), flags, mode); \
    }
OPENS_FILE(open)
OPENS_FILE(open64)

int clock_gettime(clockid_t which, struct timespec *now)
{
    static time_t ahead = 0;
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, now);
    if (access(DIRECTORY "/fast-clock", F_OK) == 0) ahead++;
    now->tv_sec += ahead;
    return failed;
}
