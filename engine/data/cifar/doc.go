// Package cifar reads CIFAR-10 and CIFAR-100 (A. Krizhevsky, 2009) from the official binary archives: 50,000 training
// images and 10,000 test images, 32 x 32 pixels, 10 or 100 classes.
//
// Without a path, Open downloads the archive into a cache folder and checks its SHA-256. It reads the archive as a
// stream into memory (184 MB), without extracting files. Open also accepts a folder with the extracted .bin files. It
// does not check the hashes of these files.
//
// Errors are of type *data.Fault. If errors.Is(err, download.ErrUnavailable), the archive currently cannot be
// downloaded.
package cifar
