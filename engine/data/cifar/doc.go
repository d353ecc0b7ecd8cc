// Package cifar reads CIFAR-10 and CIFAR-100 (A. Krizhevsky, 2009) from the official binary archives: 50,000 images to
// train on and 10,000 to test with, 32 x 32 pixels, 10 or 100 classes.
//
// Open downloads the archive into a cache folder if there is no path to one, checks its SHA-256, and reads it as a
// stream into memory (184 MB); nothing is extracted. A folder with the extracted .bin files serves as well, unchecked.
//
// Errors are *data.Fault; errors.Is(err, download.ErrUnavailable) tells that the archive cannot be had now.
package cifar
