// Package objects reads and writes objects of S3 and of servers with the same protocol. Names are s3://BUCKET/KEY.
//
//	client, err := objects.Shared()                         // settings and credentials of the environment
//	info, err := client.Stat(ctx, name)                     // size and ETag
//	err = client.ReadRange(ctx, info, offset, p)            // fails if the object has changed since Stat
//	list, err := client.List(ctx, prefix)
//	err = client.Put(ctx, name, file, size)                 // several parts if the file is large
//
// # Settings
//
// All settings come from the environment, and none from a configuration file, so an untrusted configuration file cannot
// send credentials to another server. Credentials of a role come from the services that the environment names, or from
// the machine.
//
//	AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN   keys
//	AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN                     a role for a web identity (Kubernetes on AWS)
//	AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, …_FULL_URI            the role of a container
//	AWS_EC2_METADATA_DISABLED                                     true: do not ask the machine for its role
//	AWS_NO_SIGN_REQUEST                                           true: public buckets, without credentials
//	AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL                         another server than AWS
//	AWS_REGION, AWS_DEFAULT_REGION                                region
//
// The files of the AWS tools (~/.aws) are not read.
//
// # Requests
//
// If an error may be transient, a request is attempted up to 8 times, with exponential waits of 0.2 s to 5 s. Transient
// errors are: no connection, a truncated body, status 429 and status 5xx. Each attempt has a time limit, which grows
// with the size of the body. A Client has at most 64 requests in flight, and follows no redirects. Replace stores an
// object only if the present object has the expected ETag. Put makes an object visible only when it is complete. It
// aborts a failed upload of several parts.
//
// # Errors
//
// Errors are *Error, which names the request, the object and a remedy. A missing object or bucket is fs.ErrNotExist.
// Error texts contain no credentials.
package objects
