// Sends the requests of a client that orval generated.
export async function call<T>(url: string, options: RequestInit): Promise<T> {
  const [server, token] = process.argv.slice(2);
  const headers = { ...options.headers, Authorization: `Bearer ${token}` };
  const response = await fetch(server + url, { ...options, headers });
  const { status } = response;
  if (response.headers.get("Content-Type") === "application/x-ndjson") {
    return { status, stream: response, headers: response.headers } as T;
  }
  return { status, data: await response.json(), headers: response.headers } as T;
}
