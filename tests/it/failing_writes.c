/* Preloaded into a server: every write of a table's file fails while the file FLAG exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
static int fails(int fd)
{
    char link[64], path[512];
    ssize_t length;
    if (access(FLAG, F_OK) != 0) return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strstr(path, "/base/") == NULL) return 0;
    errno = EIO;
    return 1;
}
#define WRAP(name, type, size) \
    ssize_t name(int fd, type what, size n, off_t at) \
    { \
        ssize_t (*real)(int, type, size, off_t) = dlsym(RTLD_NEXT, #name); \
        return fails(fd) ? -1 : real(fd, what, n, at); \
    }
WRAP(pwrite, const void *, size_t)
WRAP(pwrite64, const void *, size_t)
WRAP(pwritev, const struct iovec *, int)
WRAP(pwritev64, const struct iovec *, int)
