"""The parties that run: each is an app made by a function, from one settings file.

Over HTTP, with bodies in msgpack (the messages of `gather.protocol`) and problems in JSON (RFC 9457):

    proxy   GET  /rounds, /rounds/{digest}                    for devices: rounds and their questions
            PUT  /rounds/{digest}/reports/{report_id}         a device's upload: 201, or why not
            GET  /rounds/{digest}/status                      {"phase": ...}
            POST /rounds                                      signed by the server
            GET  /healthz
    server  POST /jobs, /agreements, /shares                  signed by the proxy
            POST /rounds; GET /rounds                         signed by the operator
            GET  /rounds/{digest}/result                      counts; 409 not-yet, 410 too-few
            GET  /healthz

A device uses `device_client.HttpUploads`, an operator `http_client.HttpOperator` (or `tacit serve open` and
`result`).
"""
