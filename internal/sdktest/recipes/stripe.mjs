// STRIPE_API_KEY=… node stripe.mjs
import Stripe from "stripe";

const [, port] = (process.env.PENSTOCK_OUTBOUND ?? "127.0.0.1:8090").split(":");
const client = new Stripe(process.env.STRIPE_API_KEY, { protocol: "http", host: "localhost", port });
const customer = await client.customers.create({ name: "Ada" });
console.log(customer.name);
